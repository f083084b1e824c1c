"""What is asked of a method without a run: exact worlds, gradients at a checkpoint, fingerprints, golden values."""
