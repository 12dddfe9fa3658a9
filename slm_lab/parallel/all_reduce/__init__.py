"""Synchronous ranks that average gradients at every step ("all_reduce")."""
