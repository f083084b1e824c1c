"""The command line: `main` is its parser, and each command a file with `add`, which gives it its part.

Nothing heavy is imported before a command runs, so that `tokenpo --help` answers at once.
"""
