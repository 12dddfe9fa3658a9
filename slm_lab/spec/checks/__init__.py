"""Checks of a spec beyond the types of its keys, and warnings about suspicious
values."""
