"""Comparisons: variants of a spec, each trained under the same seeds."""
