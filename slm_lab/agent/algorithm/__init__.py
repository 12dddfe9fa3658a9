"""The algorithm room: short final classes over pure functions for losses and
returns."""
