"""Recipes: read them, check them, change them by flags, build their objective."""

# The engines that train a recipe: this process, and a Tinker server.
EMBEDDED, TINKER = ENGINES = "embedded", "tinker"
SERVER = "service.json"  # the file in a run directory that a Tinker server trains


def again(directory: object, engine: str) -> str:
    """The command that resumes a run."""
    return f"tokenpo train --resume {directory}" + ("" if engine == EMBEDDED else f" --engine {engine}")
