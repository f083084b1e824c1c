"""What the tests against foreign code share: how it is asked for, and its functions called on our batches."""

from .ours import ours, summed
from .required import absent, need

__all__ = ["absent", "need", "ours", "summed"]
