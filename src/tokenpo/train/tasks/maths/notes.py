"""Notes of the verifier `math` on answers that it read."""

REPEATED, UNREADABLE = "question repeated", "unreadable reference"
