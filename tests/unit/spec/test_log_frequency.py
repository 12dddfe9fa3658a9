"""How often a Session writes a row."""

import pytest

from slm_lab.spec.load import parse_spec
from slm_lab.spec.parse import parse
from tests.support import ppo

TOGETHER = {"distributed": "shared", "max_session": 4}
RANKS = {"distributed": "all_reduce", "max_session": 4}
ACTORS = {"distributed": "actor_learner", "max_session": 4}


SEEDS = {"max_session": 4}


@pytest.mark.parametrize(
    ("meta", "frames"),
    [(SEEDS, 5_000), (TOGETHER, 1_250), (RANKS, 1_250), (ACTORS, 5_000)],
)
def test_by_default_a_session_writes_two_hundred_rows(meta, frames):
    raw = ppo(env__max_frame=1_000_000, agent__algorithm__minibatch_size=16)
    spec = parse_spec("s", {**raw, "meta": meta})
    assert spec.meta.log_frequency == frames
    assert parse_spec("s", {**raw, "meta": {**meta, "log_frequency": None}}) == spec
    assert parse_spec("s", spec.to_json()) == spec


def test_an_extended_run_keeps_its_log_frequency():
    raw = ppo(env__max_frame=1_000_000)
    del raw["meta"]["log_frequency"]
    saved = parse_spec("s", raw).to_json()
    saved["env"]["max_frame"] = 2_000_000
    assert parse_spec("s", saved).meta.log_frequency == 5_000


@pytest.mark.parametrize(
    ("frames", "meta", "doubted"),
    [
        (10_000, {}, False),
        (10_001, {}, True),
        (2_500, TOGETHER, False),
        (2_501, TOGETHER, True),
        (None, TOGETHER, False),
    ],
)
def test_fewer_than_a_hundred_rows_get_a_warning(frames, meta, doubted):
    raw = ppo(env__max_frame=1_000_000)
    raw["meta"] = {**meta, "log_frequency": frames}
    found = [
        line
        for line in parse("s", raw).suspicious
        if line.startswith("meta.log_frequency")
    ]
    assert bool(found) == doubted
    if doubted:
        assert "gives 99 rows" in found[0]
