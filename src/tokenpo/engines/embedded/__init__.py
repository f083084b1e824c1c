"""The embedded engine: one process, a CPU or one GPU, from a recipe to a run directory.

`config` says what can be set, `loop` what happens. Importing this package imports nothing heavy.
"""
