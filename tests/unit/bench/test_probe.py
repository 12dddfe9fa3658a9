"""The probe: what it tries, predicts and advises, by hand-computed numbers."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from bench.probe import changes, measurement
from bench.probe.changes import AS_IS, Change, candidates
from bench.probe.measurement import Probe, Watch, as_probed, best, fastest
from bench.probe.rehearsal import Times, rehearse
from slm_lab.core.errors import LabError
from slm_lab.experiment.source import RunSource
from slm_lab.session.status_board import Phase
from tests.contract.parts_table import CONV
from tests.faults.lab import write_spec
from tests.support import parse, ppo, reinforce, soft

ALIKE, FASTER_ALIKE = Change(("a=1",)), Change(("a=2",))
DIFFERENT = Change(("b=1",), "differently")


@pytest.fixture
def cores(monkeypatch):
    monkeypatch.setattr(changes, "usable_cores", lambda: 4)
    monkeypatch.setattr(measurement, "usable_cores", lambda: 4)


def probed(folder, **keys):
    write_spec(folder, ppo(**keys))
    return Probe(RunSource(str(folder / "spec.json")), folder / "runs")


def tried(found):
    return {change.text for change in found._specs if change is not AS_IS}


def test_changes_are_those_that_the_spec_allows(cores, tmp_path):
    found = probed(tmp_path, env__num_envs=2)
    assert "env.num_envs=4" in tried(found)
    assert "meta.threads=4" in tried(found)
    assert "meta.distributed=all_reduce meta.max_session=4 meta.scale=strong" in tried(found)
    assert "meta.distributed=actor_learner meta.max_session=3" in tried(found)
    write_spec(tmp_path, reinforce())
    whole_episodes = Probe(RunSource(str(tmp_path / "spec.json")), tmp_path)
    assert not any("actor_learner" in text for text in tried(whole_episodes))


@pytest.mark.parametrize(
    ("meta", "left_out"),
    [
        ({"max_session": 4}, "meta.distributed"),
        ({"threads": 4}, "meta.threads"),
        ({"distributed": "shared", "max_session": 2}, "meta.distributed"),
    ],
)
def test_a_change_without_free_cores_is_left_out(meta, left_out, cores):
    found = candidates(parse(ppo(**{f"meta__{key}": value for key, value in meta.items()})))
    assert not [each for each in found if left_out in each.text]


def test_a_probed_spec_learns_soon_and_does_not_end(cores):
    late = {"agent__algorithm__training_start_step": 100_000, "env__max_frame": 200_000}
    meta = {"meta__max_session": 9, "meta__eval_frequency": 500}
    spec = parse(soft("SoftActorCritic", **late, **meta))
    short = as_probed(spec)
    assert short.agent.algorithm.training_start_step == 1_000
    assert short.env.max_frame == 10**9
    assert short.log_frequency == spec.log_frequency
    assert short.meta.max_session == 4
    assert short.meta.eval_frequency is None


def times(environment, update):
    return Times(environment, 0.0, 0.0, update, event_frames=64)


def test_predictions_are_in_the_units_of_the_run_and_what_learns_alike_comes_first(tmp_path):
    found = probed(tmp_path)
    found._specs = {change: parse(ppo()) for change in (AS_IS, ALIKE, FASTER_ALIKE, DIFFERENT)}
    found._specs[DIFFERENT] = parse(ppo(meta__distributed="actor_learner", meta__max_session=2))
    found._times = {
        AS_IS: [times(0.006, 0.004)],
        ALIKE: [times(0.006, 0.003)] * 2,
        FASTER_ALIKE: [times(0.002, 0.002)],
        DIFFERENT: [times(0.006, 0.004)],
    }
    assert found.rehearsed(AS_IS) == pytest.approx(100)
    assert found.rehearsed(ALIKE) == pytest.approx(222.22, abs=0.01)
    assert found.rehearsed(DIFFERENT) == pytest.approx(250)  # a learner of 250/s; actors of 333/s
    predictions = found.predictions(frames_per_s=90.0)  # rows and exchange take a tenth
    assert list(predictions) == [FASTER_ALIKE, ALIKE, DIFFERENT]
    assert list(predictions.values()) == pytest.approx([225, 200, 225])
    assert best(predictions, 90.0) == [FASTER_ALIKE, ALIKE, DIFFERENT]
    assert best(predictions, 215.0) == []


def test_the_advice_learns_alike_where_that_is_a_gain():
    runs = {ALIKE: 120.0, FASTER_ALIKE: 130.0, DIFFERENT: 900.0}
    assert fastest(runs, 100.0) == FASTER_ALIKE
    assert fastest(runs, 129.0) == DIFFERENT
    assert fastest(runs, 900.0) is None
    assert fastest({}, 1.0) is None


@pytest.mark.parametrize(
    ("parts", "bound"),
    [
        ((5.0, 1.0, 1.0, 2.0, 64, 2.0), "the environment"),
        ((1.0, 1.0, 1.0, 5.0, 64, 1.0), "Python"),
        ((1.0, 1.0, 1.0, 5.0, 64, 3.0), "arithmetic"),
        ((1.0, 1.0, 4.0, 2.0, 64, 2.0), "the agent's memory"),
    ],
)
def test_what_bounds_a_training_is_its_largest_part(parts, bound):
    assert Times(*parts).bound.startswith(bound)
    assert sum(Times(*parts).shares.values()) == pytest.approx(1)


def board(frames, phase=Phase.RUNNING):
    stops = []
    return SimpleNamespace(
        clock_slots=np.array(frames), num_sessions=len(frames), phase=lambda _: phase, stops=stops,
        request_stop=lambda: stops.append(True),
    )  # fmt: skip


def test_a_run_is_measured_from_its_first_training_event_on(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(measurement, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
    watch, stops = Watch(start=100, seconds=5.0), []
    for second in range(20):
        now.seconds = float(second)
        frames = 10 * second if second < 11 else 110 + 50 * (second - 11)
        seen = board([frames, 0], Phase.STARTING if second < 3 else Phase.RUNNING)
        watch(seen)
        stops.append(bool(seen.stops))
    assert watch.frames_per_s == pytest.approx(50)
    assert stops.index(True) == 16
    assert not watch.is_late


def test_a_run_without_frames_is_given_up(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(measurement, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
    watch, seen = Watch(start=100, seconds=5.0), board([0])
    watch(seen)
    assert not seen.stops
    now.seconds = 151.0
    watch(seen)
    assert watch.is_late
    assert seen.stops


def test_a_rehearsal_times_every_part_in_every_worker():
    specs = [as_probed(parse(ppo())), as_probed(parse(ppo(env__num_envs=4)))]
    for spec, found in zip(specs, rehearse(specs, 2, ()), strict=True):
        assert len(found) == 2
        for each in found:
            assert min(each.environment, each.acting, each.memory, each.update) > 0
            assert each.event_frames == spec.agent.algorithm.time_horizon * spec.env.num_envs


def test_a_change_that_cannot_be_built_is_left_out_and_a_spec_that_cannot_is_reported():
    good = as_probed(parse(ppo()))
    net = {**CONV, "type": "ConvNet", "optim_spec": {"name": "GlobalAdam", "lr": 1e-3}}
    bad = as_probed(parse(ppo(agent__net=net)))
    assert [found is None for found in rehearse([good, bad], 1, ())] == [False, True]
    with pytest.raises(LabError, match=r"a rehearsal of the spec failed: .*ConvNet"):
        rehearse([bad, good], 1, ())


def test_document_and_table_agree(tmp_path, monkeypatch, capsys):
    from bench.probe.__main__ import probe as command

    write_spec(tmp_path, ppo())
    speeds = {True: 100.0, False: 130.0}
    monkeypatch.setattr(Probe, "rehearse", lambda self: [times(0.006, 0.004)])
    monkeypatch.setattr(Probe, "rehearsed", lambda self, change: 100.0)
    monkeypatch.setattr(Probe, "predictions", lambda self, speed: {ALIKE: 125.0, DIFFERENT: 80.0})
    monkeypatch.setattr(Probe, "run", lambda self, change: speeds[change is AS_IS])
    file = str(tmp_path / "spec.json")
    command(file, None, (), (), as_json=False)
    text = capsys.readouterr().out
    assert "measured 130, 1.30 times: a=1" in text
    assert text.splitlines()[-1] == f"try: slm-lab run {file} small train -s a=1"
    command(file, None, (), (), as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["frames_per_s"] == 100.0
    assert document["set"] == ["a=1"]
    assert [each["measured"] for each in document["changes"]] == [130.0, None]
