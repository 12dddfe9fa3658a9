"""Layers, activations and initialisation."""
