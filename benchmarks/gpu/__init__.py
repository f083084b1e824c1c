"""The pieces of `make gpu`."""
