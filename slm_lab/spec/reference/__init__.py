"""The reference of the spec language, generated from its models."""
