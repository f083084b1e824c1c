"""Seeds keyed by purpose and index, so that a resumed run has no generator state to restore."""

import hashlib

import torch


def keyed_seed(seed: int, purpose: str, index: int = 0) -> int:
    """A 63-bit seed, independent for each (seed, purpose, index).

    >>> keyed_seed(0, "shuffle", 1) == keyed_seed(0, "shuffle", 1) != keyed_seed(0, "shuffle", 2)
    True
    """
    digest = hashlib.blake2b(f"{seed}/{purpose}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def keyed_generator(seed: int, purpose: str, index: int = 0) -> torch.Generator:
    """A generator with the `keyed_seed` of these arguments."""
    return torch.Generator().manual_seed(keyed_seed(seed, purpose, index))
