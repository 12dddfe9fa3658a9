"""`python -m bench.probe`: where the time of a training goes, and which keys make it faster."""
