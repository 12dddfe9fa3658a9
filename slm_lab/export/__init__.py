"""Trained agents as files for other programs."""
