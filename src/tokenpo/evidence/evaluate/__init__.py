"""Evaluation: benchmarks, samples, unbiased estimators over them, and the numbers with their intervals.

`estimators` holds the formulas, `summary` applies them to samples from anywhere and prints, `run` samples a model.
"""
