"""Exact worlds: small automata in which the true gradient of the reward is known, to hold methods to it."""
