"""The numbers of infos in the rows of whole trainings, in every mode."""

import logging

import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

from slm_lab.env.state import ENV_ADAPTERS, attributes
from slm_lab.testing.sessions import stop_at
from tests.support import parse, ppo, q_learning, rows, run_ranks, run_session

HERE = "tests.unit.env.wrapped"
LENGTH = "info_episode.extras.length"
SUCCESS = "info_is_success"
KEYS = ["episode.extras.length", "is_success", "at_three"]


@pytest.fixture(autouse=True)
def _ends(registered, monkeypatch):
    """An environment whose return is its length, also a number of its info; saved
    exactly."""
    monkeypatch.setitem(ENV_ADAPTERS, f"{HERE}:Ends", attributes("length", "t"))
    registered("Ends-v0", f"{HERE}:Ends")


def spec_of(make=ppo, keys=KEYS, mode=None, **meta):
    env = {
        "name": "Ends-v0",
        "num_envs": 4,
        "max_frame": 800,
        "info_keys": keys,
        "vectorization_mode": mode,
    }
    return parse(make(env=env, meta={**ppo()["meta"], "log_frequency": 64, **meta}))


def assert_numbers_go_with_their_episodes(found):
    """Their mean is that of the returns, to the bit: both are sums of small whole
    numbers."""
    assert found["mean_return"].notna().sum() > 3
    assert_array_equal(found[LENGTH], found["mean_return"])
    with_any = found[SUCCESS].dropna()
    assert with_any.between(0, 1).all()
    assert with_any.nunique() > 1
    assert set(found["info_at_three"].dropna()) <= {0.5}


@pytest.mark.parametrize("make", [ppo, q_learning])
def test_a_row_has_the_mean_over_the_episodes_since_the_row_before(tmp_path, make):
    algorithm = () if make is ppo else ("DQN",)
    spec = spec_of(lambda **keys: make(*algorithm, **keys))
    session = run_session(spec, tmp_path)
    assert_numbers_go_with_their_episodes(rows(session))
    assert rows(session).columns[-3:].tolist() == [LENGTH, SUCCESS, "info_at_three"]


def test_the_rows_are_those_of_a_training_without_keys(tmp_path):
    with_keys = rows(run_session(spec_of(), tmp_path / "with"))
    without = rows(run_session(spec_of(keys=[]), tmp_path / "without"))
    assert_frame_equal(with_keys[without.columns], without, check_exact=True)
    assert not [name for name in without.columns if name.startswith("info_")]


@pytest.mark.parametrize("at", [64, 128, 320])
def test_a_resumed_run_has_the_rows_of_the_uninterrupted_one(tmp_path, at):
    spec = spec_of(rigorous_eval=2, eval_frequency=100)
    whole = run_session(spec, tmp_path / "whole")
    run_session(spec, tmp_path / "parts", on_row=stop_at(at))
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert_frame_equal(rows(resumed), rows(whole), check_exact=True)
    evaluations = [
        pd.read_csv(s.paths.eval_rows).drop(columns="wall_t") for s in (resumed, whole)
    ]
    assert_frame_equal(*evaluations, check_exact=True)


def test_an_evaluation_has_the_means_of_its_episodes(tmp_path):
    session = run_session(spec_of(rigorous_eval=3, eval_frequency=100), tmp_path)
    found = pd.read_csv(session.paths.eval_rows)
    assert len(found) == 8
    assert_array_equal(found[LENGTH], found["total_reward"])
    assert found[SUCCESS].nunique() > 1


@pytest.mark.parametrize("num_evaluated", [1, 3])
def test_the_rows_of_ranks_cover_the_episodes_of_all(tmp_path, num_evaluated):
    evaluations = {"rigorous_eval": num_evaluated, "eval_frequency": 100}
    spec = spec_of(distributed="all_reduce", max_session=2, **evaluations)
    first, _ = run_ranks(spec, tmp_path / "whole", 2)
    found = rows(first)
    assert_numbers_go_with_their_episodes(found)
    evaluations = pd.read_csv(first.paths.eval_rows)
    assert_array_equal(evaluations[LENGTH], evaluations["total_reward"])
    run_ranks(spec, tmp_path / "parts", 2, on_row=stop_at(192))
    resumed, _ = run_ranks(spec, tmp_path / "parts", 2, resume=True)
    assert_frame_equal(rows(resumed), found, check_exact=True)


@pytest.mark.parametrize("mode", ["shared", "synced"])
def test_a_hogwild_worker_has_the_numbers_of_its_own_episodes(tmp_path, mode):
    spec = spec_of(distributed=mode)
    assert_numbers_go_with_their_episodes(
        rows(run_session(spec, tmp_path, hogwild=mode))
    )


@pytest.mark.parametrize(("make", "name"), [(ppo, None), (q_learning, "DQN")])
def test_a_learner_has_the_numbers_of_its_actors_episodes(tmp_path, make, name):
    algorithm = () if name is None else (name,)
    flow = {"serial": True, **({} if name is None else {"unroll_length": 8})}
    spec = spec_of(
        lambda **keys: make(*algorithm, **keys),
        distributed="actor_learner",
        max_session=2,
        actor_learner=flow,
    )
    session = run_session(spec, tmp_path / "whole", serially=True)
    assert_numbers_go_with_their_episodes(rows(session))
    run_session(spec, tmp_path / "parts", on_row=stop_at(200), serially=True)
    resumed = run_session(spec, tmp_path / "parts", resume=True, serially=True)
    assert_frame_equal(rows(resumed), rows(session), check_exact=True)


def test_a_key_that_is_missing_is_reported_once(tmp_path, caplog, capfd):
    spec = spec_of(keys=["absent", "word", "at_three", "is_success"])
    with caplog.at_level(logging.WARNING, "slm_lab.metrics"):
        run_session(spec, tmp_path)
    lines = [each.getMessage() for each in caplog.records if "metrics" in each.name]
    assert [line.split(":")[0] for line in lines] == [
        "info_absent",
        "info_word",
        "info_at_three",
    ]
    assert "had no finite number under this key of env.info_keys" in lines[0]
    shown = capfd.readouterr().err
    assert "info_absent: " in shown
    assert "info_is_success" not in shown
