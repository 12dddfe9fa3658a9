"""A training decides by the recent return of its agent, not by a long moving average.

Episodes of one step return 0 in the first half of the budget, then 1 for a tenth of it,
then ½. The moving average over 100 rows is highest at the very end, and never above
0.6.
"""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from slm_lab.storage.checkpoint import CheckpointStore
from tests.support import make_session, parse, ppo, rows, run_session

BUDGET = 4_000


class Scripted(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._steps += 1
        reward = 0.0 if self._steps <= 2_000 else 1.0 if self._steps <= 2_400 else 0.5
        return np.zeros(1, np.float32), reward, True, False, {}


@pytest.fixture(autouse=True)
def _scripted(registered):
    registered("Scripted-v0", Scripted)


def scripted(**meta):
    raw = ppo(env__name="Scripted-v0", env__num_envs=1, env__max_frame=BUDGET)
    raw["meta"] = {"random_seed": 0, **meta}
    return parse({**raw, "agent": {"name": "Random", "algorithm": {"name": "Random"}}})


def test_the_default_log_frequency_makes_two_hundred_rows(tmp_path):
    found = rows(run_session(scripted(), tmp_path))
    assert found["frame"].tolist() == list(range(20, BUDGET + 1, 20))


def test_a_run_reports_what_its_agent_returned_in_the_end(tmp_path):
    last = rows(run_session(scripted(), tmp_path)).iloc[-1]
    assert (last["final_return"], last["final_return_episodes"]) == (0.5, 200)
    assert last["recent_return"] == last["mean_return"] == 0.5
    assert last["total_reward_ma"] == pytest.approx((20 * 1.0 + 80 * 0.5) / 100)


def test_the_best_agent_has_the_highest_recent_return(tmp_path):
    session = run_session(scripted(), tmp_path)
    found = rows(session)
    assert found.loc[found["total_reward_ma"].idxmax(), "frame"] == BUDGET
    store = CheckpointStore(session.paths.models, session.paths.prefix)
    best = store.load(store.manifest(), "best")
    # its last 100 episodes
    assert (best["frame"], best["recent_return"]) == (2_100, 1.0)


def test_a_training_ends_when_the_recent_return_reaches_stop_return(tmp_path):
    session = run_session(scripted(stop_return=0.9), tmp_path)
    assert rows(session)["total_reward_ma"].max() < 0.9
    assert session.clock.frame == 2_100


def test_the_live_line_shows_what_the_agent_returns_now(tmp_path):
    session = make_session(
        scripted(), tmp_path, on_row=lambda s: shown.append(status_board.read(0))
    )
    shown, status_board = [], session.status_board
    session.run()
    session.close()
    returns = {progress.frame: progress.recent_return for progress in shown}
    assert (returns[2_000], returns[2_100], returns[2_400]) == (0.0, 1.0, 1.0)
    assert (returns[2_500], returns[BUDGET]) == (0.5, 0.5)
    assert shown[-1].best == 1.0


def test_a_few_episodes_are_shown_but_decide_nothing_before_the_budget_is_spent(
    tmp_path,
):
    """CartPole's first episodes, fewer than twenty in the whole budget."""
    raw = ppo(
        env__num_envs=1,
        env__max_frame=300,
        meta__log_frequency=20,
        meta__stop_return=1.0,
    )
    raw["agent"]["algorithm"]["minibatch_size"] = 16
    session = make_session(
        parse(raw), tmp_path, on_row=lambda s: seen.append(s.tracker.last_row)
    )
    seen = []
    session.run()
    session.close()
    assert 1 < seen[-1]["final_return_episodes"] < 20
    assert [row["recent_return"] for row in seen[:-1]] == [None] * (len(seen) - 1)
    assert session.clock.frame == 300
    assert (
        seen[-1]["recent_return"]
        == seen[-1]["final_return"]
        == session.tracker.best_return
    )
