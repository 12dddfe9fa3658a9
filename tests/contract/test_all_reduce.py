"""Every algorithm trains as synchronous ranks without extra code."""

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from slm_lab.parallel.all_reduce.process_groups import GroupBuffers
from slm_lab.parallel.all_reduce.strategy import AllReduceStrategy
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.session.status_board import StatusBoard
from tests.contract.runs import assert_same_run, assert_same_vectors, stop_at, vectors
from tests.contract.table import ALGORITHM_ROWS
from tests.support import Rank, parse, reinforce, rows, run_ranks, run_session

FIRST = [(name, next(iter(rows))) for name, rows in ALGORITHM_ROWS.items()]
QUICK = ("PPO", "Reinforce", "SoftActorCritic")
"""One of each kind: rollouts, episodes, replay with three optimizers. The others are
slow."""


ALL = [(name, variant) for name, rows in ALGORITHM_ROWS.items() for variant in rows]


def with_slow(cases, quick):
    """As parameters; those that are not among the `quick` ones are slow."""
    marks = {case: () if case in quick else pytest.mark.slow for case in cases}
    return [
        pytest.param(case, marks=mark, id="-".join(case))
        for case, mark in marks.items()
    ]


EVERY = pytest.mark.parametrize("case", with_slow(ALL, FIRST))
ONE_EACH = pytest.mark.parametrize(
    "case", with_slow(FIRST, [c for c in FIRST if c[0] in QUICK])
)


@pytest.fixture
def row(case):
    return ALGORITHM_ROWS[case[0]][case[1]]


@pytest.fixture
def spec(row):
    """With frames for several rows of each of two ranks."""
    return row.with_budget(600)


@EVERY
def test_one_rank_equals_a_single_process(case, row, whole_runs, tmp_path):
    rank = Rank(0, StatusBoard.allocate(CONTEXT, 1), GroupBuffers.of(1))
    session = run_session(row.spec, tmp_path, rank=rank)
    assert_same_run(session, whole_runs.get(*case))


@pytest.mark.medium
@ONE_EACH
def test_two_ranks_end_with_equal_weights_and_can_be_repeated(spec, tmp_path):
    first, second = run_ranks(spec, tmp_path / "one", 2)
    assert_same_vectors(vectors(first), vectors(second))
    again, _ = run_ranks(spec, tmp_path / "other", 2)
    assert_same_run(again, first)
    assert rows(first)["total_frame"].iloc[-1] >= spec.env.max_frame
    assert not second.paths.rows.exists()


@ONE_EACH
def test_two_resumed_ranks_equal_uninterrupted_ones(spec, tmp_path):
    whole, _ = run_ranks(spec, tmp_path / "whole", 2)
    half = rows(whole)["frame"].iloc[len(rows(whole)) // 2]
    stopped, _ = run_ranks(spec, tmp_path / "resumed", 2, on_row=stop_at(half))
    assert stopped.clock.frame < whole.clock.frame
    resumed, other = run_ranks(spec, tmp_path / "resumed", 2, resume=True)
    assert_same_run(resumed, whole)
    assert_same_vectors(vectors(other), vectors(whole))


@pytest.mark.parametrize("case", [("PPO", next(iter(ALGORITHM_ROWS["PPO"])))])
def test_the_rows_are_about_the_episodes_and_frames_of_all_ranks(spec, tmp_path):
    sent = [0, 0]

    def counting(board, group):
        strategy = AllReduceStrategy(board, group)
        send = strategy.episodes.send

        def counted(finished):
            sent[group.rank] += len(finished.episode_return)
            send(finished)

        strategy.episodes.send = counted
        return strategy

    first, second = run_ranks(spec, tmp_path, 2, counting)
    last = rows(first).iloc[-1]
    assert last["total_frame"] == first.clock.frame + second.clock.frame
    assert last["epi"] == first.tracker.episodes
    unsent = sum(len(each.episode_return) for each in second.strategy.episodes._unsent)
    assert min(sent) > unsent
    assert first.tracker.episodes == sum(sent) - unsent
    cpu = pd.read_csv(first.paths.rows)["cpu_t"]
    assert (cpu.diff().dropna() > 0).all()


@pytest.mark.parametrize("case", [("PPO", next(iter(ALGORITHM_ROWS["PPO"])))])
def test_a_rank_without_rows_keeps_no_returns_for_them(spec, tmp_path):
    def saved(rank):
        store = rank.records.store
        return store.load(store.manifest())["tracker"]

    trackers = [saved(rank) for rank in run_ranks(spec, tmp_path, 2)]
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
