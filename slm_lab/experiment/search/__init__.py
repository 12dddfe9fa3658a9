"""A search: trials of specs that an engine proposes and a scheduler may end early."""
