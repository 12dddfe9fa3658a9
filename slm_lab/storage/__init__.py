"""What a Session writes: file names, checkpoints, manifests, results."""
