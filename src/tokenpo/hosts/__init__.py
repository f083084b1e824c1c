"""Adapters that translate a framework's names and layouts; the framework drives training. None imports another."""
