"""What a spec must fulfil beyond the types of its keys, and what is suspicious about it."""
