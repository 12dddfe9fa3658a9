"""Hogwild!: workers without locks on a network in shared memory ("shared",
"synced")."""
