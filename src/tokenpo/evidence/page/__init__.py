"""What every page is made of: its frame, charts, colour scales, tokens."""
