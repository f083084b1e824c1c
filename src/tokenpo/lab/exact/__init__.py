"""Exact worlds: small automata whose true gradient of the reward is known, so that methods can be compared with it."""
