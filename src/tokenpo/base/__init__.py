"""What knows nothing of reinforcement learning: errors, text, files, intervals, code of the user's."""
