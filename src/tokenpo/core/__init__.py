"""Inputs, parts, objectives, their learner and their laws; needs only torch and the standard library."""
