"""The agent: an actor that acts, a memory that keeps, a learner that updates."""
