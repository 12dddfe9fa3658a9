"""The memory room: where transitions wait to be learned from."""
