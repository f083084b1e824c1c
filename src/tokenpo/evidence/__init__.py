"""Evidence on runs and methods: evaluation, comparison, explanation, reports."""
