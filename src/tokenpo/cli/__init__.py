"""The commands, those of a kind in one file. `main` is the parser; a file's `add` gives it its commands.

Nothing heavy is imported before a command runs, so that `tokenpo --help` answers at once.
"""
