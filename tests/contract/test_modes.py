"""The lab's modes keep the contract, by their own launchers."""

import pytest

from slm_lab.testing import ModeCase, ModeContract
from tests.support import ppo, soft

SPEEDS = ("updates_per_s",)

pytestmark = pytest.mark.medium


class TestModes(ModeContract):
    cases = {
        "shared": ModeCase("shared", ppo(), repeats=False, timed=SPEEDS),
        "synced": ModeCase("synced", ppo(), repeats=False, timed=SPEEDS),
        "all_reduce": ModeCase("all_reduce", ppo()),
        "all_reduce_replay": ModeCase("all_reduce", soft("SoftActorCritic")),
        "actor_learner": ModeCase(
            "actor_learner", ppo(), keys={"serial": True}, one_is_none=False
        ),
    }
