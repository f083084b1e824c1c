"""The commands, related ones in one file. `main` makes the parser; each file's `add` adds its commands.

Nothing heavy is imported before a command runs, so that `tokenpo --help` answers at once.
"""
