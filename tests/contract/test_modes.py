"""The lab's modes keep the contract, by their own launchers."""

import pytest
from typing_extensions import override

from slm_lab.testing import ModeCase, ModeContract
from tests.support import ppo, soft

SPEEDS = ("updates_per_s",)

pytestmark = pytest.mark.medium


REPEATED = ("test_it_can_be_repeated", "test_a_fork_repeats_it")


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

    @override
    def cases_of(self, test):
        """The replay of ranks is repeated by the tests of algorithms, too."""
        parameters = []
        for name, case in self.cases.items():
            is_slow = name == "all_reduce_replay" and test in REPEATED
            marks = [pytest.mark.slow] if is_slow else []
            parameters.append(pytest.param(case, id=name, marks=marks))
        return parameters
