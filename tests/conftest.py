"""Settings of the whole suite."""

from hypothesis import settings

# A deadline per example measures the machine's load, not the code.
settings.register_profile("lab", deadline=None)
settings.load_profile("lab")
