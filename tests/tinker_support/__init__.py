"""A Tinker server in this process: a small model behind the clients of the real package.

The classes of `tinker` do what they do: requests get numbers and wait for their turn, sequences are split into chunks,
`forward_backward_custom` hands our loss detached leaves on a thread of its own, raises where one gets no gradient, and
sends weights = −gradient; a client whose loss failed takes no request any more. Only what would go over the network is
answered here: forward and backward passes, which accumulate, steps of AdamW, snapshots, samples and checkpoints.
"""

from .server import MODEL, Cloud, Sampler, Service

__all__ = ["MODEL", "Cloud", "Sampler", "Service"]
