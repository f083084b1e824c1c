"""Recipes: read them, check them, change them by flags, build their objective."""
