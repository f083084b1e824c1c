"""Foreign engines: names and layouts translated, one package each, every one an extra that is imported on demand."""
