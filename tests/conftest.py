"""Settings of the whole suite."""

import pytest
import torch
from hypothesis import settings

# A deadline per example measures the machine's load, not the code.
settings.register_profile("lab", deadline=None)
settings.load_profile("lab")

# As a Session has it: on networks as small as these, two threads take six times as long.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _with_subnormal_numbers():
    """A test before this one that ran a Session within its own process has set them to zero."""
    torch.set_flush_denormal(False)
