"""TRL as an engine: `TokenPOTrainer` is TRL's `GRPOTrainer` with an objective of ours in place of its loss."""
