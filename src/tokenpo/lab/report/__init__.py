"""Draws a run directory as one self-contained HTML page."""
