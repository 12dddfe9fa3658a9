"""Wrappers that convert observations, actions and rewards."""
