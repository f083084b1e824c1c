"""The small trainer: tasks, models, recipes and runs."""
