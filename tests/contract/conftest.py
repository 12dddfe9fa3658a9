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
    """Keeps a costly test of the later rows of algorithms, one worker against none, in
    one mode per row, by turns. In the row's other modes it is slow."""
    names = [name for name in flat(ALGORITHM_ROWS) if name not in FIRST]
    modes = cycle(get_args(ModeWord))
    kept = {f"{name}-{mode}" for name, mode in zip(names, modes, strict=False)}
    for item in items:
        test, _, case = item.name.rstrip("]").partition("[")
        if test != "test_one_worker_of_a_mode_equals_a_single_process":
            continue
        if case.rpartition("-")[0] in names and case not in kept:
            item.add_marker(pytest.mark.slow)
