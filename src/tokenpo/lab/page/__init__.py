"""The building blocks of pages and terminal output: frame, charts, colour scales, tokens, tables."""
