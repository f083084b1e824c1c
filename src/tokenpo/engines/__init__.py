"""Adapters to foreign engines: names and layouts are translated, nothing else. Nobody imports them."""
