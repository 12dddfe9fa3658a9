"""Settings of the contract tests."""

from collections.abc import Iterator

import pytest

from slm_lab.env.state import ENV_ADAPTERS, attributes

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
