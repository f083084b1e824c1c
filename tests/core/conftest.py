from small_batches import batch, rollouts

__all__ = ["batch", "rollouts"]
