"""What each engine cannot honour, as cases; tools/site/refusals.py writes docs/refusals.md from them."""
