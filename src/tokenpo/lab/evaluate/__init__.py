"""Evaluation: benchmarks, samples, unbiased estimators over them, and the numbers with their intervals."""
