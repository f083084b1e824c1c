"""Methods that no host but the embedded engine runs, or whose code is not published; each owns the input it needs."""
