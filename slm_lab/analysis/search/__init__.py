"""What a search found: variables against results."""
