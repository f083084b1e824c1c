"""Pure functions of tensors; each file holds one concept."""
