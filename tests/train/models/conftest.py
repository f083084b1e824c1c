from small_models import lm, load_family, make_model, prompts

__all__ = ["lm", "load_family", "make_model", "prompts"]
