"""The spec language: reads, checks and changes spec files. Does not import torch."""
