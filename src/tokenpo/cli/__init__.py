"""The command line: one file per command. `main` is the parser; each file has `add`, which gives it its part.

Nothing heavy is imported before a command runs, so that `tokenpo --help` answers at once.
"""
