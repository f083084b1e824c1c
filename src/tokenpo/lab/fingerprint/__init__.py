"""Fingerprints of methods: curves of the push over each fact of a token, and pictures of them."""
