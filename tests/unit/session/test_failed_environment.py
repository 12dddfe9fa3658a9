"""A Session whose environment raises an exception, or whose state cannot be saved."""

import itertools
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pandas.testing import assert_frame_equal

from slm_lab.core.errors import CheckpointError
from slm_lab.env.failure import (
    EnvironmentFailedError,
)
from slm_lab.parallel.all_reduce.process_groups import GroupBuffers
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.result import Ending
from tests.support import (
    Rank,
    make_session,
    parse,
    ppo,
    q_learning,
    read_rows,
    rows,
    run_session,
)

LOOSE = partial(ValueError, "a cable is loose")


class Breakable(gymnasium.Env):
    """Episodes of five steps. While `broken`, `place` raises `error` at its `at`-th
    call."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)
    broken = True

    def __init__(self, place="step", at=100, error=LOOSE):
        self.place = place
        self.left = at
        self.error = error
        self.resets = 0

    def _call(self, place):
        if place == self.place:
            self.left -= 1
            if self.left == 0 and Breakable.broken:
                raise self.error()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._call("reset")
        self.t = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self._call("step")
        self.t += 1
        obs = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return obs, float(action), self.t == 5, False, {}

    def close(self):
        self._call("close")


@pytest.fixture
def spec_of(registered, monkeypatch):
    monkeypatch.setattr(Breakable, "broken", True)

    def make(spec=ppo, place="step", at=100, error=LOOSE, **keys):
        name = registered("Breakable-v0", partial(Breakable, place, at, error))
        options = {"env__max_frame": 1000, "meta__save_interval": 10_000, **keys}
        return parse(spec(env__name=name, **options))

    return make


def fail(spec, folder, error=Exception, **options):
    """The Session that has failed, and its error."""
    session = make_session(spec, folder, **options)
    try:
        with pytest.raises(error) as caught:
            session.run()
    finally:
        session.close()
    return session, caught.value


@pytest.mark.parametrize("algorithm", [ppo, partial(q_learning, "DQN")])
@pytest.mark.parametrize(
    ("place", "at", "frame"), [("step", 100, 396), ("reset", 9, 156)]
)
def test_no_frame_before_a_failure_is_lost(
    spec_of, tmp_path, algorithm, place, at, frame
):
    spec = spec_of(algorithm, place, at)
    session, error = fail(spec, tmp_path, ValueError)
    assert f"the state is saved at frame {frame}" in error.__notes__
    assert any(
        note.startswith(f"in {place}() of environment 0") for note in error.__notes__
    )
    Breakable.broken = False
    resumed = make_session(spec, tmp_path, resume=True)
    assert resumed.clock.frame == frame
    assert resumed.agent.learner.opt_step == session.agent.learner.opt_step > 0
    resumed.run()
    resumed.close()
    assert resumed.clock.frame == 1000


def test_a_real_ctrl_c_stays_what_it_is(spec_of, tmp_path):
    fail(spec_of(error=KeyboardInterrupt), tmp_path, KeyboardInterrupt)


def test_a_failure_in_an_evaluation_is_saved_as_if_it_had_not_begun(spec_of, tmp_path):
    keys = {"meta__rigorous_eval": 2, "meta__eval_frequency": 160}
    spec = spec_of(place="step", at=12, **keys, env__num_envs=2)
    session = make_session(spec, tmp_path)
    for env in session.env.raw.envs:
        env.unwrapped.place = "nowhere"
    with pytest.raises(
        EnvironmentFailedError, match="evaluation on Breakable-v0"
    ) as caught:
        session.run()
    session.close()
    assert "a cable is loose" in str(caught.value)
    assert any("the state is saved at frame" in note for note in caught.value.__notes__)
    Breakable.broken = False
    resumed = run_session(spec, tmp_path, resume=True)
    assert resumed.clock.frame == 1000
    evaluations = read_rows(resumed.paths.eval_rows)
    assert evaluations["frame"].tolist() == [160 * n for n in range(1, 7)] + [1000]


@pytest.mark.parametrize("mode", [{"hogwild": "shared"}, {"hogwild": "synced"}])
def test_a_worker_saves_what_all_share(spec_of, tmp_path, mode):
    spec = spec_of(meta__distributed=mode["hogwild"])
    _, error = fail(spec, tmp_path, ValueError, **mode)
    assert "the state is saved at frame 396" in error.__notes__


def test_all_ranks_save_where_the_environment_of_one_fails(
    registered, tmp_path, monkeypatch
):
    monkeypatch.setattr(Breakable, "broken", True)
    numbers = itertools.count()

    def make():
        return Breakable("step" if next(numbers) == 0 else "nowhere")

    registered("Breakable-v0", make)
    keys = {
        "env__max_frame": 2000,
        "meta__max_session": 2,
        "meta__save_interval": 10_000,
    }
    spec = parse(ppo(env__name="Breakable-v0", meta__distributed="all_reduce", **keys))
    status_board = StatusBoard.allocate(CONTEXT, 2)
    place = GroupBuffers.of(2)

    def run(index):
        rank = make_session(spec, tmp_path, rank=Rank(index, status_board, place))
        try:
            return rank.run(), rank
        except ValueError as error:
            return error, rank
        finally:
            rank.close()

    with ThreadPoolExecutor(2) as threads:
        ends = list(threads.map(run, range(2)))
    (failed, at_failure), (stopped, other) = sorted(
        ends, key=lambda end: not isinstance(end[0], ValueError)
    )
    assert "the state is saved at frame 396" in failed.__notes__
    assert stopped.ending is Ending.INTERRUPTED
    saved = [rank.records.store.manifest() for rank in (at_failure, other)]
    assert saved[0].serial == saved[1].serial == 1
    assert saved[0].frame == 396
    assert 384 <= saved[1].frame <= 384 + 64, "at the next training event"


def test_serial_actors_are_saved_and_begin_afresh(spec_of, tmp_path):
    meta = {
        "meta__distributed": "actor_learner",
        "meta__actor_learner": {"serial": True},
    }
    spec = spec_of(**meta)
    session, error = fail(spec, tmp_path, ValueError, serially=True)
    assert f"the state is saved at frame {session.clock.frame}" in error.__notes__
    Breakable.broken = False
    resumed = run_session(spec, tmp_path, resume=True, serially=True)
    assert resumed.clock.frame >= 1000


def test_a_failure_before_the_first_step_saves_nothing(spec_of, tmp_path):
    session, _ = fail(spec_of(at=1), tmp_path, ValueError)
    assert session.records.store.manifest() is None


def test_after_a_failure_an_exact_environment_begins_a_new_episode(
    tmp_path, monkeypatch
):
    """Some copies have stepped and others not, so what was observed last is not their
    state."""
    spec = parse(ppo(env__name="Pendulum-v1", meta__save_interval=10_000))
    session = make_session(spec, tmp_path)
    calls = []

    def step(action):
        calls.append(action)
        if len(calls) == 70:
            raise ValueError("a cable is loose")
        return last_env_step(action)

    last = session.env.raw.envs[3]
    last_env_step = last.step
    monkeypatch.setattr(last, "step", step)
    with pytest.raises(ValueError, match="a cable is loose"):
        session.run()
    session.close()
    saved = session.env.obs.copy()
    resumed = make_session(spec, tmp_path, resume=True)
    assert not np.isin(resumed.env.obs, saved).any()
    memory = resumed.agent.memory.state_dict()
    assert memory["arrays"]["truncated"][memory["t"] - 1].all(), (
        "the rollout is cut there"
    )
    resumed.close()


def test_a_close_that_raises_ends_nothing(spec_of, tmp_path, caplog):
    spec = spec_of(place="close", at=1)
    whole = run_session(spec, tmp_path)
    assert whole.clock.frame == 1000
    (warning,) = [each for each in caplog.records if each.name == "slm_lab.env.failure"]
    assert warning.levelno == logging.WARNING
    assert (
        "close() of <Breakable<Breakable-v0>> raised ValueError: a cable"
        in warning.message
    )


class Unsavable:
    """Stands for the state of somebody's part."""


def test_a_state_that_cannot_be_saved_is_refused_before_anything_is_learned(
    tmp_path, monkeypatch
):
    session = make_session(parse(ppo(meta__save_interval=10_000)), tmp_path)
    state_dict = session.agent.actor.state_dict
    monkeypatch.setattr(
        session.agent.actor,
        "state_dict",
        lambda: {**state_dict(), "noise": [1, Unsavable()]},
    )
    place = (
        r"agent\.actor\.noise\.1: a Unsavable cannot be saved in a checkpoint; "
        "a state_dict may"
    )
    with pytest.raises(CheckpointError, match=place):
        session.run()
    session.close()
    assert session.agent.learner.opt_step == 0


def test_trying_to_save_changes_nothing(tmp_path, monkeypatch):
    spec = parse(ppo())
    whole = run_session(spec, tmp_path / "whole")
    monkeypatch.setattr("slm_lab.session.session.Session._try_to_save", lambda _: None)
    assert_frame_equal(
        rows(run_session(spec, tmp_path / "untried")), rows(whole), check_exact=True
    )
