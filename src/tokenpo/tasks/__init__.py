"""Verifiable tasks: one explicit table from name to builder; each family is imported when it is asked for."""
