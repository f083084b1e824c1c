"""Pure functions of tensors, one concept a file."""
