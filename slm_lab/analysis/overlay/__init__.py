"""Curves of several runs over each other, with a table of their ends."""
