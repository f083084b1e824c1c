"""The embedded engine: one process, a CPU or one GPU, from a recipe to a run directory.

`train.recipe.config` has the settings, `loop` the run. Importing this package imports nothing heavy.
"""
