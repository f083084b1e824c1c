"""What evidence is shown with: the frame of a page, charts, strips, colour scales, tokens, tables, the terminal."""
