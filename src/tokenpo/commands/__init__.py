"""Commands of the command line that are a file of their own: `add(commands)` gives the parser its part.

Nothing heavy is imported before a command runs, so that `tokenpo --help` answers at once.
"""
