"""Settings of the whole suite."""

import torch
from hypothesis import settings

# A deadline per example measures the machine's load, not the code.
settings.register_profile("lab", deadline=None)
settings.load_profile("lab")

# As a Session has it: on networks as small as these, two threads take six times as long.
torch.set_num_threads(1)
