"""Engines: adapters between hosts' names and layouts and ours; they drive training. None of them imports another."""
