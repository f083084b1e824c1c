"""Fingerprints of methods: curves of the push over each fact of a token, pictures of them, an explorer."""
