"""The verifier `math`: math-verify compares values; this package reads the text around them.

`equal` is called in a process that can be killed; nothing here imports the rest of tokenpo. Conventions: docs/tasks.md.
"""
