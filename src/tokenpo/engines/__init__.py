"""Engines: names and layouts of a host translated, its loop driven. None of them imports another."""
