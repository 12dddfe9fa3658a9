"""Figures: one description, drawn as PNG and as HTML."""
