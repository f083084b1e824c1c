"""The effect of each method on every token of recorded rollouts, without training. Formulas: docs/explain.md."""
