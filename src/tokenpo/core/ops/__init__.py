"""Pure tensor functions: tensors in, tensors out, torch only. One concept a file."""
