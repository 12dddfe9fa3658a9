"""A spec for an environment that has none: probe the environment, choose a recipe,
write a file."""
