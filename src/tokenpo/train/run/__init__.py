"""A run of the small trainer: its directory, its checkpoints, and the training loop."""
