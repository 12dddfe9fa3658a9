"""Basics that every package may use: errors, shared types, the registry of named
parts."""
