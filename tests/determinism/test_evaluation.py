"""An evaluation changes nothing of the training, and is repeated bit for bit."""

import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

from slm_lab.metrics.row import EVAL_COLUMNS
from slm_lab.session.evaluator import Evaluator, RigorousEval, snapshot_of
from slm_lab.spec.budget import dev_profile
from slm_lab.storage.checkpoint import CheckpointStore
from slm_lab.testing.sessions import assert_same_run, stop_at
from tests.contract.parts_table import decay
from tests.support import make_session, parse, ppo, reinforce, rows, run_session

SPECS = {
    "cartpole": ppo(),
    "normalized": ppo(
        env__name="Pendulum-v1",
        env__max_t=40,
        env__normalize_obs=True,
        env__normalize_reward=True,
    ),
    "norm_layers": ppo(agent__net__layer_norm=True, agent__net__batch_norm=True),
    "changing": ppo(
        env__name="Pendulum-v1",
        env__max_t=40,
        env__g=decay(10.0, 2.0),
    ),
    "shared": ppo(agent__net__shared=True),
    "reinforce": reinforce(),
    "random": {
        "agent": {"name": "Random", "algorithm": {"name": "Random"}},
        "env": {**ppo()["env"], "num_envs": 2},
        "meta": ppo()["meta"],
    },
}


def spec_of(name, **meta):
    data = SPECS[name]
    return parse({**data, "meta": {**data["meta"], **meta}})


def evaluated(name, **meta):
    """Evaluation and training rows fall together at some frames and not at others."""
    return spec_of(name, **{"rigorous_eval": 3, "eval_frequency": 150, **meta})


def eval_rows(session):
    return pd.read_csv(session.paths.eval_rows).drop(columns="wall_t")


@pytest.mark.parametrize("name", SPECS)
def test_evaluations_do_not_change_the_rows_of_a_training(name, tmp_path):
    plain = run_session(spec_of(name), tmp_path / "plain")
    watched = run_session(evaluated(name), tmp_path / "watched")
    assert not plain.paths.eval_rows.exists()
    assert_same_run(watched, plain)
    assert_array_equal(watched.env.statistics, plain.env.statistics)


@pytest.mark.medium
@pytest.mark.parametrize("name", SPECS)
def test_a_resumed_run_has_the_evaluations_of_the_uninterrupted_one(name, tmp_path):
    """Stopped at 400, where the last evaluation was at 300 and the next is at 450."""
    spec = evaluated(name)
    whole = run_session(spec, tmp_path / "whole")
    stopped = run_session(spec, tmp_path / "parts", on_row=stop_at(400))
    assert (
        eval_rows(stopped)["frame"].tolist() == eval_rows(whole)["frame"].tolist()[:2]
    )
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert_frame_equal(eval_rows(resumed), eval_rows(whole), check_exact=True)
    assert_frame_equal(rows(resumed), rows(whole), check_exact=True)
    assert best(resumed)["frame"] == best(whole)["frame"]


@pytest.mark.parametrize("frame", [300, 400])
def test_evaluations_after_the_checkpoint_are_repeated(frame, tmp_path):
    """At 300 an evaluation, a training row and the checkpoint fall together."""
    spec = evaluated("cartpole", save_interval=1000)
    whole = run_session(spec, tmp_path / "whole")

    class KilledError(Exception):
        pass

    def die(session):
        if session.clock.frame == frame:
            session._save(finished=False)
        if session.clock.frame >= 800:
            raise KilledError

    session = make_session(spec, tmp_path / "parts", on_row=die)
    with pytest.raises(KilledError):
        session.run()
    session.close()
    assert len(eval_rows(session)) == 5
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert_frame_equal(eval_rows(resumed), eval_rows(whole), check_exact=True)
    assert_frame_equal(rows(resumed), rows(whole), check_exact=True)


def best(session):
    store = CheckpointStore(session.paths.models, session.paths.prefix)
    return store.load(store.manifest(), "best")


def test_evaluations_are_eval_frequency_frames_apart_and_at_the_end(tmp_path):
    session = run_session(evaluated("cartpole"), tmp_path)
    found = pd.read_csv(session.paths.eval_rows)
    assert tuple(found.columns) == EVAL_COLUMNS
    assert found["frame"].tolist() == [152, 300, 452, 600, 752, 900, 1000]
    assert (found["return_min"] <= found["total_reward"]).all()
    assert (found["total_reward"] <= found["return_max"]).all()
    # CartPole: 1 per step
    assert (found["episode_length"] == found["total_reward"]).all()


def test_the_best_agent_has_the_best_evaluation(tmp_path):
    session = run_session(evaluated("cartpole"), tmp_path)
    found = eval_rows(session)
    kept = best(session)
    best_row = found.loc[found["total_reward"].idxmax()]
    # an older pandas reads the last digit otherwise
    assert kept["eval_return"] == pytest.approx(best_row["total_reward"], rel=1e-12)
    assert kept["frame"] == best_row["frame"]


def test_without_evaluation_the_best_agent_has_the_best_training_return(tmp_path):
    session = run_session(spec_of("cartpole"), tmp_path)
    found = rows(session)
    kept = best(session)
    assert kept["recent_return"] == found["recent_return"].max()
    assert kept["frame"] == found.loc[found["recent_return"].idxmax(), "frame"]


def test_stop_return_looks_at_the_training_whatever_evaluations_say(tmp_path):
    plain = run_session(spec_of("cartpole", stop_return=25), tmp_path / "plain")
    watched = run_session(evaluated("cartpole", stop_return=25), tmp_path / "watched")
    assert 0 < plain.clock.frame < 1000
    assert watched.clock.frame == plain.clock.frame
    assert eval_rows(watched)["frame"].iloc[-1] == watched.clock.frame


def test_the_time_of_evaluations_is_no_training_time(tmp_path, monkeypatch):
    class Time:
        now = 0.0

        @classmethod
        def perf_counter(cls):
            cls.now += 0.001
            return cls.now

        process_time = perf_counter

    play = RigorousEval.play

    def slow_play(self, snapshot, stop):
        Time.now += 1000.0
        return play(self, snapshot, stop)

    monkeypatch.setattr("slm_lab.session.parts.time", Time)
    monkeypatch.setattr(RigorousEval, "play", slow_play)
    session = run_session(evaluated("cartpole"), tmp_path)
    assert Time.now > 7000
    for path in (session.paths.rows, session.paths.eval_rows):
        assert pd.read_csv(path)["wall_t"].between(0, 10).all()
    assert (pd.read_csv(session.paths.rows)["fps"] > 100).all()


@pytest.mark.parametrize("name", SPECS)
def test_both_parts_of_a_checkpoint_play_the_same_episodes_and_change_nothing(
    name, tmp_path
):
    spec = spec_of(name)
    session = run_session(spec, tmp_path)
    played = []
    for snapshot in (session.parts.snapshot(), snapshot_of(session.parts.state_dict())):
        evaluator = Evaluator(spec, 4, seed=3)
        evaluator.load_snapshot(snapshot)
        played.append(evaluator.play(2))
        assert_array_equal(evaluator.env.statistics, session.env.statistics)
        evaluator.close()
    assert len(played[0].env_index) == 8
    for one, other in zip(*played, strict=True):
        assert_array_equal(one, other)


def test_a_dev_run_evaluates_with_few_environments():
    assert dev_profile(evaluated("cartpole", rigorous_eval=50)).meta.rigorous_eval == 2
    assert dev_profile(evaluated("cartpole", rigorous_eval=1)).meta.rigorous_eval == 1
    assert dev_profile(spec_of("cartpole")).meta.rigorous_eval == 0


@pytest.mark.medium
@pytest.mark.parametrize("name", ["cartpole", "normalized", "random"])
@pytest.mark.parametrize("at", [450, 1000])
def test_an_evaluation_that_a_stop_interrupts_is_repeated_after_the_resume(
    name, at, tmp_path, monkeypatch
):
    """The stop comes at the second step of the evaluation at the first due frame from
    `at` on."""
    spec = evaluated(name)
    whole = run_session(spec, tmp_path / "whole")
    play = RigorousEval.play
    dropped = []

    def play_with_a_stop(self, snapshot, stop):
        if snapshot["frame"] < at:
            return play(self, snapshot, stop)
        asked = iter([False, False])
        episodes = play(self, snapshot, lambda: next(asked, True))
        dropped.append(snapshot["frame"])
        monkeypatch.setattr(RigorousEval, "play", play)
        session_of[0].status_board.request_stop()
        return episodes

    monkeypatch.setattr(RigorousEval, "play", play_with_a_stop)
    session_of = []
    stopped = run_session(spec, tmp_path / "parts", on_row=session_of.append)
    assert len(dropped) == 1
    assert eval_rows(stopped)["frame"].max() < dropped[0] == stopped.clock.frame
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert_frame_equal(eval_rows(resumed), eval_rows(whole), check_exact=True)
    assert_frame_equal(rows(resumed), rows(whole), check_exact=True)
    assert best(resumed)["frame"] == best(whole)["frame"]
