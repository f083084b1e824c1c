"""The theory: facts, parts, objectives and their laws. Needs torch and the standard library alone."""
