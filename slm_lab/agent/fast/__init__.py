"""Faster ways to compute what networks and gradient steps say in torch: written out for
NumPy, or recorded on a GPU. `choose` decides at build which of them run."""
