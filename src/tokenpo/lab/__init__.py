"""Tools that look at runs and methods: evaluate, compare, explain, report, exact worlds."""
