"""A recipe as a value: read, checked, overridden from the command line, and built into an objective."""
