"""What each method would do to every token of recorded rollouts, without training.

`explanation` holds an objective to a recording, `shares` sums up, `result` puts the methods side by side; `table` and
`page` show it. Formulas: docs/explain.md.
"""
