"""Runs, Trials and Experiments, and what the commands do with them."""
