"""`slm-lab plot`: runs over each other."""
