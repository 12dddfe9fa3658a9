"""The probe: what it tries, how it measures, and what it advises, by hand-computed
numbers."""

from types import SimpleNamespace

import numpy as np
import pytest

from slm_lab.agent import device
from slm_lab.agent.net import layers as precision
from slm_lab.core.errors import LabError
from slm_lab.records.run_source import RunSource
from slm_lab.session.status_board import LOOP
from slm_lab.studies import probe as module
from slm_lab.studies.probe import (
    AS_IS,
    REST,
    Change,
    Probe,
    Rate,
    Speed,
    SpeedMeter,
    bound,
    candidates,
    gains,
    rank_rates,
)
from tests.faults.lab import write_spec
from tests.support import parse, ppo, reinforce, soft

ALIKE, FASTER_ALIKE = Change(("a=1",)), Change(("a=2",))
DIFFERENT = Change(("b=1",), is_equivalent=False)


@pytest.fixture
def cores(monkeypatch):
    monkeypatch.setattr(module, "usable_cores", lambda: 4)


def probed(folder, spec):
    write_spec(folder, spec)
    return Probe(RunSource(str(folder / "spec.json")), folder / "runs")


def speed(frames_per_s, **shares):
    return Speed(frames_per_s, shares)


def test_changes_are_those_that_the_spec_allows(cores, tmp_path):
    tried = {each.text for each in probed(tmp_path, ppo(env__num_envs=2)).changes}
    assert "env.num_envs=4" in tried
    assert "meta.threads=4" in tried
    assert "meta.distributed=all_reduce meta.max_session=4 meta.scale=strong" in tried
    assert "meta.distributed=actor_learner meta.max_session=3" in tried
    whole_episodes = probed(tmp_path, reinforce()).changes
    assert not any("actor_learner" in each.text for each in whole_episodes)


def test_a_probed_spec_learns_soon_and_does_not_end(cores, tmp_path):
    late = {"agent__algorithm__training_start_step": 100_000, "env__max_frame": 200_000}
    meta = {
        "meta__max_session": 9,
        "meta__rigorous_eval": 4,
        "meta__log_frequency": 700,
    }
    ends = {"meta__stop_return": 1.0}
    short = probed(tmp_path, soft("SoftActorCritic", **late, **meta, **ends)).spec
    assert short.meta.stop_return is None
    assert short.agent.algorithm.training_start_step == 1_000
    assert short.env.max_frame == 10**9
    assert short.log_frequency == 700
    assert short.meta.max_session == 4
    assert short.meta.rigorous_eval == 0


def test_equivalent_changes_come_first_and_a_gain_exceeds_noise():
    speeds = {AS_IS: speed(100.0), DIFFERENT: speed(900.0), ALIKE: speed(104.0)}
    found = rank_rates({**speeds, FASTER_ALIKE: speed(130.0)})
    assert found == [
        (AS_IS, 100.0),
        (FASTER_ALIKE, 130.0),
        (ALIKE, 104.0),
        (DIFFERENT, 900.0),
    ]
    assert gains(found) == [FASTER_ALIKE, DIFFERENT]
    assert gains([Rate(AS_IS, 900.0), *found[1:]]) == []


@pytest.mark.parametrize(
    ("shares", "width", "mode", "words"),
    [
        ({"environment": 0.6, "update": 0.4}, 256, False, "the environment"),
        ({"environment": 0.4, "update": 0.6}, 128, False, "Python"),
        ({"environment": 0.4, "update": 0.6}, 256, False, "arithmetic"),
        ({"memory": 0.6, "update": 0.4}, 256, False, "the agent's memory"),
        ({REST: 0.6, "update": 0.4}, 64, False, "rows, or other programs"),
        ({REST: 0.6, "update": 0.4}, 64, "shared", "the exchange"),
        ({REST: 0.6, "update": 0.4}, 64, "all_reduce", "the exchange"),
        ({REST: 0.6}, 64, "actor_learner", "the actors: the learner waits"),
        ({}, 64, False, "the environment: the agent does not learn"),
    ],
)
def test_the_bottleneck_of_a_training_is_its_largest_part(
    shares, width, mode, words, cores
):
    meta = {"meta__distributed": mode, "meta__max_session": 2} if mode else {}
    spec = parse(ppo(agent__net__hid_layers=[width, width], **meta))
    assert bound(spec, {AS_IS: speed(100.0, **shares)}).startswith(words)


def test_more_sessions_than_cores_are_bound_by_the_cores(cores):
    spec = parse(ppo(meta__max_session=5))
    assert bound(spec, {AS_IS: speed(100.0)}) == "the cores: 5 Sessions share 4"


class Seen:
    """A board as a SpeedMeter sees it second by second."""

    def __init__(self, monkeypatch, sessions=1):
        self.clock_slots, self.now, self.stops = np.zeros(sessions, np.int64), 0.0, 0
        self.loop = np.zeros(sessions, LOOP)
        monkeypatch.setattr(
            module, "time", SimpleNamespace(perf_counter=lambda: self.now)
        )

    def request_stop(self):
        self.stops += 1

    def event(self, session, *parts):
        """A training event now, after these seconds in each part."""
        loop = self.loop[session]
        loop["events"] += 1
        loop["frames"] = self.clock_slots[session]
        loop["seconds"] = self.now
        loop["part_seconds"] += parts


def test_a_run_is_measured_between_training_events(monkeypatch):
    status_board = Seen(monkeypatch)
    meter = SpeedMeter(4.0, slice(None), learns=True)
    for second in range(1, 20):
        status_board.now = float(second)
        status_board.clock_slots[0] += 50
        # after 150 frames, 2 s in the environment and 0.5 s of learning
        if second % 3 == 0:
            status_board.event(0, 0.25, 2.0, 0.0, 0.5)
        meter(status_board)
        if status_board.stops:
            break
    assert status_board.now == 9  # events at 3, 6 and 9
    assert meter.speed.frames_per_s == pytest.approx(50)
    shares = {
        "acting": 1 / 12,
        "environment": 2 / 3,
        "memory": 0.0,
        "update": 1 / 6,
        REST: 1 / 12,
    }
    assert meter.speed.shares == pytest.approx(shares)


@pytest.mark.parametrize(
    ("slow", "stops", "begins"), [(8.0, 10, 1), (9.0, 20, 10), (np.inf, 20, 10)]
)
def test_a_first_rollout_counts_if_it_takes_long(monkeypatch, slow, stops, begins):
    status_board = Seen(monkeypatch)
    meter = SpeedMeter(4.0, slice(None), learns=True, slow=slow)
    for second in range(21):
        status_board.now = float(second)
        status_board.clock_slots[0] = second**2  # the first frames are seen after 1 s
        if second in (10, 20):
            status_board.event(0, 0.0, 6.0, 0.0, 3.0)
        meter(status_board)
        if status_board.stops:
            break
    assert status_board.now == stops
    seconds = stops - begins
    assert meter.speed.frames_per_s == pytest.approx((stops**2 - begins**2) / seconds)
    shares = {"environment": 6 / seconds, "update": 3 / seconds, REST: 1 - 9 / seconds}
    assert meter.speed.shares == pytest.approx({"acting": 0.0, "memory": 0.0, **shares})


def test_a_change_that_the_machine_cannot_run_is_left_out(cores, tmp_path, monkeypatch):
    def tried(can):
        monkeypatch.setattr(precision, "has_bf16", lambda device: can)
        return {each.text for each in probed(tmp_path, ppo(**WIDE)).changes}

    assert tried(True) - tried(False) == {"agent.net.precision=bf16"}


SOFT = soft("SoftActorCritic")
WIDE = {"agent__net__hid_layers": [256, 256]}
CONV = {
    "type": "ConvNet",
    "conv_hid_layers": [[64, 8, 4, 0, 1], [64, 4, 2, 0, 1]],
    "fc_hid_layers": [512],
}


NUMPY = "agent.net.matmul=numpy"
BF16 = "agent.net.precision=bf16"
CRITIC = {"agent__critic_net": {"type": "MLPNet", "hid_layers": [256, 256]}}
TRIED = [
    # a word, keys of the spec, and the changes with this word that are tried
    ("distributed", {"meta__max_session": 4}, []),
    ("distributed", {"meta__distributed": "shared", "meta__max_session": 2}, []),
    ("threads", {"meta__threads": 4}, []),
    ("threads", {}, ["meta.threads=4"]),
    ("num_envs", {"env__num_envs": 2}, ["env.num_envs=4", "env.num_envs=8"]),
    ("matmul", WIDE, [NUMPY]),
    ("matmul", {"agent__net__critic_hid_layers": [256, 256]}, [NUMPY]),
    ("matmul", WIDE | CRITIC, [f"{NUMPY} agent.critic_net.matmul=numpy"]),
    ("matmul", {**WIDE, "meta__threads": 2}, []),
    ("matmul", {**WIDE, "agent__net__matmul": "numpy"}, []),
    ("matmul", {**WIDE, "agent__net__precision": "bf16"}, []),
    ("matmul", {**WIDE, "agent__net__gpu": "auto"}, []),
    ("matmul", {**WIDE, "agent__net__gpu": True}, []),
    ("matmul", {"agent__net__hid_layers": [64, 64]}, []),
    ("matmul", {"agent__net": CONV}, []),
    ("precision", WIDE, [BF16]),
    ("precision", {**WIDE, "agent__net__precision": "bf16"}, []),
    ("precision", {**WIDE, "agent__net__precision": "auto"}, []),
    ("precision", {"agent__net__hid_layers": [256]}, []),
    ("precision", {"agent__net": CONV}, [BF16]),
    ("envpool", {}, ["env.backend=envpool"]),
    ("envpool", {"env__vectorization_mode": "native"}, ["env.backend=envpool"]),
    ("envpool", {"env__vectorization_mode": "sync"}, []),
    ("envpool", {"env__vectorization_mode": "async"}, []),
    ("envpool", {"env__backend": "envpool"}, []),
]


@pytest.mark.parametrize(("word", "keys", "tried"), TRIED)
def test_a_change_is_tried_where_it_may_help(cores, monkeypatch, word, keys, tried):
    monkeypatch.setattr(precision, "has_bf16", lambda device: True)
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: name)
    found = [each for each in candidates(parse(ppo(**keys))) if word in each.text]
    assert [each.text for each in found] == tried
    learns = "alike" if word in ("matmul", "threads") else "differently"
    assert {each.learns for each in found} <= {learns}


@pytest.mark.parametrize(
    ("keys", "num_envs", "tried"),
    [
        # one event per step: 4 and 8 times the frames, 4 and 8 times the batches
        ({"training_frequency": 1}, 2, [(4, 2), (8, 4)]),
        ({"training_frequency": 1, "training_batch_iter": 3}, 1, [(2, 6), (4, 12)]),
        ({"training_frequency": 8}, 1, [(2, None), (4, None)]),
        ({"training_frequency": 4}, 2, [(4, None), (8, 2)]),
        # 8 frames per event in place of 6: 4/3 of a batch
        ({"training_frequency": 6}, 2, []),
        ({"update_to_data": 0.5}, 4, [(8, None), (16, None)]),
    ],
)
def test_more_environments_come_with_as_many_gradient_steps(
    cores, keys, num_envs, tried
):
    every = {
        f"agent__algorithm__{k}": v
        for k, v in {"training_batch_iter": 1, **keys}.items()
    }
    spec = parse(soft("SoftActorCritic", env__num_envs=num_envs, **every))
    found = [each.sets for each in candidates(spec) if "num_envs" in each.text]
    wanted = [
        (f"env.num_envs={envs}",)
        + ((f"agent.algorithm.training_batch_iter={batches}",) if batches else ())
        for envs, batches in tried
    ]
    assert found == wanted


def test_all_workers_must_learn_before_they_are_measured_and_a_learner_counts_alone(
    monkeypatch,
):
    status_board = Seen(monkeypatch, sessions=2)
    both, learner = (
        SpeedMeter(0.5, counted, learns=True) for counted in (slice(None), slice(1))
    )
    for second in range(1, 9):
        status_board.now = float(second)
        status_board.clock_slots[:] = 100 * second, 10 * second
        status_board.event(0, 0.0, 0.0, 0.0, 0.0)
        if second > 4:
            status_board.event(1, 0.0, 0.0, 0.0, 0.0)
        both(status_board)
        learner(status_board)
        assert learner.is_over == (second >= 2)
        assert both.is_over == (second >= 6)
    assert both.speed.frames_per_s == pytest.approx(110)
    assert learner.speed.frames_per_s == pytest.approx(100)


def test_each_session_is_measured_over_its_own_rollouts_and_the_first_shows_its_shares(
    monkeypatch,
):
    status_board = Seen(monkeypatch, sessions=2)
    meter = SpeedMeter(5.0, slice(None), learns=True)
    for second in range(1, 20):
        status_board.now = float(second)
        if second % 3:  # two seconds of playing, one of learning
            status_board.clock_slots[0] += 15
        else:
            status_board.event(0, 0.6, 1.2, 0.0, 1.2)
        if second % 4 in (2, 3):  # the other learns for two seconds
            status_board.clock_slots[1] += 20
        elif second % 4 == 1:
            status_board.event(1, 0.0, 1.0, 0.0, 0.0)
        meter(status_board)
    assert meter.speed.frames_per_s == pytest.approx(10 + 10)
    shares = {
        "acting": 0.2,
        "environment": 0.4,
        "memory": 0.0,
        "update": 0.4,
        REST: 0.0,
    }
    assert meter.speed.shares == pytest.approx(shares)


def test_an_agent_that_learns_nothing_is_measured_by_its_frames(monkeypatch):
    status_board = Seen(monkeypatch)
    meter = SpeedMeter(2.0, slice(None), learns=False)
    for second in range(6):
        status_board.now = float(second)
        status_board.clock_slots[0] = 30 * second
        meter(status_board)
    assert meter.is_over
    assert meter.speed == (pytest.approx(30), {})


def test_a_run_without_events_is_given_up(monkeypatch):
    status_board = Seen(monkeypatch)
    meter = SpeedMeter(5.0, slice(None), learns=True)
    meter(status_board)
    assert not status_board.stops
    status_board.now = 151.0
    meter(status_board)
    assert meter.is_late
    assert status_board.stops


class Runs:
    """Stands in for the runs of a probe: gives the results of a list, then `last`."""

    def __init__(self, monkeypatch, probe, changes, *results, last=None):
        probe._specs = dict.fromkeys((AS_IS, *changes), probe.spec)
        self.probe = probe
        self.results = list(results)
        self.last = last
        self.changes = []
        monkeypatch.setattr(module, "measure", self)

    def __call__(self, task, seconds):
        change = self.probe._turns[len(self.probe.study_state.trials) - 1]
        self.changes.append(change)
        result = self.results.pop(0) if self.results else self.last(change)
        if isinstance(result, LabError):
            raise result
        return speed(result, update=result / 1000)


def rates(speeds):
    return {change: speed.frames_per_s for change, speed in speeds.items()}


@pytest.mark.parametrize(
    ("second", "mean"),
    [(110.0, 120.0), (LabError("no more"), 130.0)],
    ids=["runs", "fails"],
)
def test_a_change_that_cannot_run_is_left_out_and_spec_and_gains_are_run_twice(
    tmp_path, monkeypatch, second, mean
):
    probe, numbers = probed(tmp_path, ppo()), []
    results = [100.0, LabError("no"), 104.0, 130.0, second, 120.0]
    Runs(monkeypatch, probe, (ALIKE, FASTER_ALIKE, DIFFERENT), *results)
    assert probe.survey(numbers.append) == {
        AS_IS: speed(110.0, update=0.1),
        FASTER_ALIKE: speed(104.0, update=0.104),
        DIFFERENT: speed(mean, update=0.13),
    }
    assert numbers == [1, 2, 3, 4, 5, 6]


def test_only_the_best_three_gains_are_run_twice(tmp_path, monkeypatch):
    changes = [Change((f"a={number}",)) for number in range(6)]
    results = [100.0, *(90.0 + 10 * number for number in range(6))]
    probe = probed(tmp_path, ppo())
    runs = Runs(monkeypatch, probe, changes, *results, last=lambda change: 100.0)
    probe.survey(lambda number: None)
    assert runs.changes[7:] == [changes[5], changes[4], changes[3], AS_IS]


def test_the_unchanged_spec_must_run_and_all_that_are_verified(tmp_path, monkeypatch):
    probe = probed(tmp_path, ppo())
    Runs(monkeypatch, probe, (ALIKE,), LabError("no"))
    with pytest.raises(LabError, match="no"):
        probe.survey(lambda number: None)
    Runs(monkeypatch, probe, (ALIKE,), 100.0, LabError("why"), 100.0)
    with pytest.raises(LabError, match="why"):
        probe.verify([ALIKE])


def test_no_change_is_tried_after_the_survey_s_time_and_the_others_are_verified(
    tmp_path, monkeypatch
):
    """A run of the spec takes 60 s, so there is time for one change."""
    probe, now = probed(tmp_path, ppo()), [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def run(change):
        now[0] += 60.0
        return 100.0 + now[0]

    Runs(monkeypatch, probe, (ALIKE, DIFFERENT), last=run)
    speeds = probe.survey(lambda number: None)
    assert rates(speeds) == {AS_IS: (160.0 + 280.0) / 2, ALIKE: 220.0}
    verified = probe.verify([ALIKE])
    assert rates(verified) == {AS_IS: (340.0 + 460.0) / 2, ALIKE: 400.0}


def once(probe):
    """The speed of the unchanged spec, from a real run."""
    probe._on_run = lambda number: None
    return [speed for _, speed in probe._measure([AS_IS], 0.2)]


@pytest.mark.medium
@pytest.mark.parametrize(
    "mode",
    [
        False,
        pytest.param("shared", marks=pytest.mark.slow),
        pytest.param("all_reduce", marks=pytest.mark.slow),
        pytest.param("actor_learner", marks=pytest.mark.slow),
    ],
)
def test_a_run_in_a_mode_is_measured_and_leaves_nothing(tmp_path, mode):
    workers = {"meta__distributed": mode, "meta__max_session": 2} if mode else {}
    found = probed(tmp_path, ppo(**workers))
    (measured,) = once(found)
    assert measured.frames_per_s > 0
    assert sum(measured.shares.values()) == pytest.approx(1, abs=0.05)
    assert measured.shares["update"] > 0
    assert (measured.shares["environment"] > 0) is (mode != "actor_learner")
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.medium
def test_a_spec_that_fails_is_reported(tmp_path):
    found = probed(tmp_path, ppo(env__name="Nothing-v0"))
    with pytest.raises(
        LabError, match=r"a run failed: Session 0: [\s\S]*no such environment"
    ):
        once(found)
