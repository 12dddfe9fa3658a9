"""Faster ways to compute the networks and gradient steps that are written in torch.
They are written out for NumPy, or recorded on a GPU. `choose` decides at build which of
them run."""
