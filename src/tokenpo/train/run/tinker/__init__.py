"""The loop on a Tinker server."""
