"""Run folders on disk: checkpoints, manifests, locks, and loading them."""
