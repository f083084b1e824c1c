"""A run directory, written and read in the same format for every engine; the training loop."""
