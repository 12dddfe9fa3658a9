"""Ways of running the Sessions of a Trial."""
