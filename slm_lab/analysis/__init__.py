"""Turns the rows of a run into metrics, statistics and graphs."""
