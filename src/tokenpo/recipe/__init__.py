"""A recipe as a value: read, checked, changed by flags, built into an objective."""
