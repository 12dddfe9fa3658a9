"""The spec language: what a file may say, checked before anything runs. Needs no torch."""
