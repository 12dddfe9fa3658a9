"""Settings of the contract tests."""

from collections.abc import Iterator
from itertools import cycle
from typing import get_args

import pytest

from slm_lab.env.state import ENV_ADAPTERS, attributes
from slm_lab.testing.algorithm_case import ModeWord
from tests.contract.table import ALGORITHM_ROWS, FIRST, flat

STATE_OF_PROBES = {
    "MatchChoices": ("_obs", "_t"),
    "MatchBits": ("_obs", "_t"),
    "MatchParts": ("_wanted", "_t"),
    "ChooseAndAim": ("_obs", "_t"),
    "MoveByParameter": ("_named", "_t"),
    "ReachPoint": ("_obs", "_t"),
    "NearPoint": ("_obs", "_t"),
    "MatchImage": ("_obs", "_half", "_t"),
    "AimByImage": ("_obs", "_half", "_t"),
    "MatchScene": ("_wanted", "_t"),
    "AimInScene": ("_wanted", "_t"),
    "TakeAllowed": ("_numbers", "mask", "_t"),
    "TakeAllowedPair": ("_numbers", "mask", "_t"),
}

COSTLY_IN_MODES = {
    "test_one_worker_of_a_mode_equals_a_single_process",
    "test_resumed_workers_equal_uninterrupted_ones",
}


@pytest.fixture(scope="session", autouse=True)
def probes_with_exact_state() -> Iterator[None]:
    """A run on them can then be resumed within an episode, as on common simulators."""
    with pytest.MonkeyPatch.context() as patch:
        for name, names in STATE_OF_PROBES.items():
            key = f"tests.learning.probe_envs:{name}"
            patch.setitem(ENV_ADAPTERS, key, attributes(*names))
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs costly tests of a row in one mode, by turns. In its other modes they come
    later: medium for the first row of an algorithm, slow for the others."""
    modes = cycle(get_args(ModeWord))
    kept = {
        f"{name}-{mode}"
        for name, mode in zip(flat(ALGORITHM_ROWS), modes, strict=False)
    }
    for item in items:
        test, _, case = item.name.rstrip("]").partition("[")
        if test in COSTLY_IN_MODES and case not in kept:
            first = case.rpartition("-")[0] in FIRST
            item.add_marker(pytest.mark.medium if first else pytest.mark.slow)
