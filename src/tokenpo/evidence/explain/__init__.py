"""The effect of each method on every token of recorded rollouts, without training.

`push` holds one objective to a recording and sums up, `explanation` puts the methods side by side; `table` and `page`
show it. Formulas: docs/explain.md.
"""
