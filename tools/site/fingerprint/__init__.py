"""Fingerprints of methods: how the push on a token depends on each of its properties, as curves and pictures."""
