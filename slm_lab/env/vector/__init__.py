"""Vector environments: N copies stepped together, with same-step reset."""
