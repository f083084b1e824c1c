"""A run directory: written and read here, whichever engine trains."""
