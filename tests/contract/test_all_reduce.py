"""What synchronous ranks count, and where their budget ends."""

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from slm_lab.parallel.all_reduce.strategy import AllReduceStrategy
from slm_lab.testing.sessions import (
    stop_at,
)
from tests.contract.table import ALGORITHM_ROWS, DQN, keys_of_net
from tests.support import parse, reinforce, rows, run_ranks

SPEC = ALGORITHM_ROWS["PPO"]["separate"].with_budget(600)
"""With frames for several rows of each of two ranks."""


def test_the_rows_are_about_the_episodes_and_frames_of_all_ranks(tmp_path):
    sent = [0, 0]

    def counting(status_board, group):
        strategy = AllReduceStrategy(status_board, group)
        send = strategy.episodes.send

        def counted(finished):
            sent[group.rank] += len(finished.episode_return)
            send(finished)

        strategy.episodes.send = counted
        return strategy

    first, second = run_ranks(SPEC, tmp_path, 2, counting)
    last = rows(first).iloc[-1]
    assert last["total_frame"] == first.clock.frame + second.clock.frame
    assert last["epi"] == first.tracker.episodes
    unsent = sum(len(each.episode_return) for each in second.strategy.episodes._unsent)
    assert min(sent) > unsent
    assert first.tracker.episodes == sum(sent) - unsent
    cpu = pd.read_csv(first.paths.rows)["cpu_t"]
    assert (cpu.diff().dropna() > 0).all()


def test_a_rank_without_rows_keeps_no_returns_for_them(tmp_path):
    def saved(rank):
        store = rank.records.store
        return store.load(store.manifest())["tracker"]

    trackers = [saved(rank) for rank in run_ranks(SPEC, tmp_path, 2)]
    assert [tracker["episodes"] > 0 for tracker in trackers] == [True, False]
    assert trackers[1]["returns_since_row"] == []


def episodes_of_their_own(count, **changes):
    """Ranks that each learn from one episode, however long it is: they step
    unevenly."""
    sizes = {
        "env__num_envs": 1,
        "env__max_frame": 1500,
        "agent__algorithm__training_frequency": 1,
    }
    together = {"meta__distributed": "all_reduce", "meta__max_session": count}
    return parse(reinforce(**sizes, **together, meta__log_frequency=50, **changes))


@pytest.mark.medium
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", [0, 2])
def test_the_budget_is_spent_wherever_the_frames_were_made(count, seed, tmp_path):
    ranks = run_ranks(episodes_of_their_own(count), tmp_path, count, seed=seed)
    made = [rank.clock.frame for rank in ranks]
    assert len(set(made)) == count
    assert 1500 <= sum(made) < 1500 + count
    assert [rank.clock.total_frame for rank in ranks] == [sum(made)] * count
    assert rows(ranks[0])["total_frame"].iloc[-1] == sum(made)


@pytest.mark.medium
def test_the_end_of_the_budget_is_the_same_after_a_stop_just_before_it(tmp_path):
    spec = episodes_of_their_own(2)
    whole, _ = run_ranks(spec, tmp_path / "whole", 2)
    frame = int(rows(whole)["frame"].iloc[-2])
    run_ranks(spec, tmp_path / "resumed", 2, on_row=stop_at(frame))
    resumed, _ = run_ranks(spec, tmp_path / "resumed", 2, resume=True)
    assert_frame_equal(rows(resumed), rows(whole), check_exact=True)


def test_a_return_that_is_reached_ends_all_ranks_before_the_budget_is_spent(tmp_path):
    ranks = run_ranks(episodes_of_their_own(2, meta__stop_return=1.0), tmp_path, 2)
    assert sum(rank.clock.frame for rank in ranks) < 1000


@pytest.mark.parametrize(
    "row",
    [
        DQN(keys_of_net(update_frequency=50), training_frequency=1),
        ALGORITHM_ROWS["VanillaDQN"]["uniform"],
    ],
    ids=["by_frequency", "by_the_ratio"],
)
def test_ranks_whose_agents_leave_at_other_times_learn_in_step(row, tmp_path):
    """At the end ranks compare their networks and targets."""
    spec = row.changed({"name": "pettingzoo:tests.restless_team", "num_envs": 2}, {})
    first, second = run_ranks(spec, tmp_path, 2)
    stored = [rank.agent.memory.num_stored for rank in (first, second)]
    assert stored[0] != stored[1]
    steps = [rank.agent.learner.opt_step for rank in (first, second)]
    assert steps[0] == steps[1] > 0
    ratio = spec.agent.algorithm.update_to_data
    if ratio is not None:
        start = spec.agent.algorithm.training_start_step
        wanted = ratio * (sum(stored) / 2 - start)
        assert abs(steps[0] - wanted) <= 4
