"""The command line. `main` is its parser; the longer commands have a file each, whose `add(commands)` gives it a part.

Nothing heavy is imported before a command runs, so that `tokenpo --help` answers at once.
"""
