"""The files that a Session writes: names, checkpoints, manifests, results."""
