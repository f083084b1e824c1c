"""The command line: one file for each kind of command. `main` is the parser; a file's `add` gives it its commands.

Nothing heavy is imported before a command runs, so that `tokenpo --help` answers at once.
"""
