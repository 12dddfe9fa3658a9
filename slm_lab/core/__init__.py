"""What every room may use: errors, shared types, the registry of named parts."""
