"""Analyses of methods without a training run: exact worlds, gradients at a checkpoint, fingerprints."""
