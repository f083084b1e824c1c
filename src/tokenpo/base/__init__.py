"""Modules without reinforcement learning: errors, text, files, intervals, the user's code."""
