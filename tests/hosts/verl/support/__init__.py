"""What the tests of the verl adapter share; nothing here is part of the package."""
