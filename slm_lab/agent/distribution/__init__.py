"""Action distributions that draw from a given generator.

torch.distributions samples from the global generator and validates its arguments at every call;
these do neither. Shapes: B batch (any leading shape), A action dimensions.
"""
