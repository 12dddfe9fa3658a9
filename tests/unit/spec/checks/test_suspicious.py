"""What can be done and is hardly meant: one line of warning, and the spec runs."""

import itertools
import json
import logging

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from slm_lab.agent.net.q_network import TargetNetwork
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.replay_config import TrainingSchedule
from slm_lab.cli.spec import app
from slm_lab.spec.load import check_file, parse_spec
from slm_lab.spec.parse import parse
from slm_lab.spec.schema.net import MLPNetSpec
from tests.support import actor_critic, ppo, q_learning, sarsa, soft
from tests.unit.agent.algorithm.batches import OneBatch, dqn, transitions

GREEDY = {"agent__algorithm__action_policy": "default",
          "agent__algorithm__explore_var_spec": None}  # fmt: skip


def suspicious(raw):
    parsed = parse("s", raw)
    assert [str(problem) for problem in parsed.problems] == []
    return but_for_rows(parsed.suspicious)


def but_for_rows(found):
    """Small specs of tests write few rows."""
    return [line for line in found if not line.startswith("meta.log_frequency")]


def schedule(start, end=None):
    name = "no_decay" if end is None else "linear_decay"
    spec = {"name": name, "start_val": start, "end_val": end, "end_step": 100}
    return {"agent__algorithm__explore_var_spec": spec}


@pytest.mark.parametrize(
    ("raw", "explores"),
    [
        (sarsa(), True),
        (sarsa(**GREEDY), False),
        (q_learning("DQN", **GREEDY), False),
        (q_learning("DQN", **GREEDY, agent__algorithm__action_pdtype="Argmax"), False),
        (q_learning("DQN", **GREEDY, agent__algorithm__action_pdtype="Categorical"), True),
        (q_learning("DQN", **schedule(0.0)), False),
        (q_learning("DQN", **schedule(0.0, 0.0)), False),
        (q_learning("DQN", **schedule(0.0, 0.1)), True),
        (q_learning("DQN", **schedule(1.0, 0.0)), True),
        (ppo(), True),
        (soft("CrossQ"), True),
    ],
)
def test_acting_without_any_exploration_is_doubted(raw, explores):
    found = suspicious(raw)
    assert [line.split(" = ")[0].rpartition(".")[2] for line in found] == (
        [] if explores else ["action_policy" if raw["agent"]["algorithm"]["action_policy"] ==
                             "default" else "start_val"]
    )  # fmt: skip
    assert all("nothing is explored" in line for line in found)


def following(num_envs, frequency, update_frequency, steps=1, **net):
    return q_learning(
        "DoubleDQN",
        env__num_envs=num_envs,
        agent__algorithm__training_frequency=frequency,
        agent__algorithm__training_batch_iter=steps,
        **{f"agent__net__{key}": value for key, value in net.items()},
        agent__net__update_frequency=update_frequency,
    )


@pytest.mark.parametrize("num_envs", [1, 4, 7])
def test_a_target_is_doubted_where_every_event_makes_it_equal(num_envs):
    """Just there, and no doubt where it ever is another: the real events decide."""
    seen = set()
    for frequency in (1, 4, 10, 16):
        for update_frequency in (1, 4, 7, 8, 9, 12, 16, 17, 100):
            events, copies = events_and_copies(num_envs, frequency, update_frequency)
            doubted = bool(suspicious(following(num_envs, frequency, update_frequency)))
            if frequency % num_envs == 0 or num_envs % frequency == 0:
                assert doubted == (copies == events)
            else:  # events are not always equally far apart
                assert copies == events or not doubted
            seen.add(doubted)
    assert seen == {True, False}


def events_and_copies(num_envs, frequency, update_frequency):
    """How many training events there are in 1000 frames, and how often the target is copied."""
    online, target = (FlatParameters(torch.nn.Linear(1, 1)) for _ in range(2))
    target_network = TargetNetwork(online, target, MLPNetSpec(update_frequency=update_frequency))
    schedule, events, copies = TrainingSchedule(frequency, 0), 0, 0
    for stored in range(num_envs, 1000, num_envs):
        if schedule.due(stored - num_envs, stored):
            online.vector.add_(1.0)
            target_network.update_after_event(stored)
            events += 1
            copies += torch.equal(online.vector, target.vector)
    return events, copies


@pytest.mark.parametrize(
    ("raw", "path", "end"),
    [
        (following(4, 16, 16), "agent.net.update_frequency = 16", "never differs from it"),
        (following(4, 16, 16, steps=3), "agent.net.update_frequency = 16", "the 3 gradient steps"),
        (following(4, 16, 17), None, None),
        (
            following(4, 16, 1, update_type="polyak", polyak_coef=1.0),
            "agent.net.update_frequency = 1",
            "never differs from it",
        ),
        (following(4, 16, 1, update_type="polyak", polyak_coef=0.9), None, None),
        (
            soft("SoftActorCritic", agent__net__update_type="replace", agent__net__polyak_coef=0.0),
            "agent.net.update_frequency = 1",
            "the 2 gradient steps",
        ),
        (soft("SoftActorCritic", agent__net__critic_update_type="polyak"), None, None),
        (soft("CrossQ"), None, None),
        (q_learning("VanillaDQN", agent__net__update_frequency=1), None, None),
    ],
)
def test_a_target_that_does_not_lag_behind_is_doubted_with_what_is_left_of_it(raw, path, end):
    found = suspicious(raw)
    if path is None:
        assert found == []
    else:
        (line,) = found
        assert line.startswith(f"{path}: ")
        assert end in line
        assert "set a larger update_frequency" in line


@pytest.mark.parametrize(
    ("ratio", "doubted"), [(0.25, [1, 4]), (0.05, [1, 4, 16, 20]), (2.0, [1, 4])]
)
def test_with_an_exact_ratio_events_are_as_far_apart_as_it_says(ratio, doubted):
    for update_frequency in (1, 4, 16, 20, 24, 100):
        raw = following(4, 1, update_frequency)
        raw["agent"]["algorithm"]["update_to_data"] = ratio
        assert bool(suspicious(raw)) == (update_frequency in doubted)


def test_the_doubted_target_is_the_net_whenever_it_is_asked():
    """With one gradient step per event; and the other one is not."""
    for update_frequency, equal in ((8, True), (16, False)):
        learner = dqn("DQN", update_frequency=update_frequency).learner
        source, batch = OneBatch(transitions()), transitions()
        for stored in (8, 16, 24):
            source.num_stored = stored
            learner.learn(source, 0)
            same = bool((learner.network.q(batch.obs) == learner.network.target_q(batch.obs)).all())
            assert same == (equal or stored == 16)


@pytest.mark.parametrize("make", [ppo, actor_critic])
def test_weights_that_are_never_published_are_doubted(make):
    """256 frames in events of 8 steps in 4 environments: there are eight."""

    def with_actors(publish_frequency):
        flow = {"unroll_length": 8, "publish_frequency": publish_frequency}
        together = {"meta__distributed": "actor_learner", "meta__actor_learner": flow}
        return make(env__max_frame=256, env__num_envs=4, **together)

    assert suspicious(with_actors(8)) == []
    (line,) = suspicious(with_actors(9))
    assert line.startswith("meta.actor_learner.publish_frequency = 9: is more than the 8 training")


def test_doubts_are_one_line_at_the_start_and_stand_in_a_check(caplog, tmp_path):
    raw = q_learning("DQN", **GREEDY, agent__net__update_frequency=4, meta__log_frequency=None)
    with caplog.at_level(logging.WARNING):
        spec = parse_spec("s", raw)
    (line,) = caplog.messages
    assert line.startswith("s: is this meant? agent.algorithm.action_policy = 'default': ")
    assert "; agent.net.update_frequency = 4: " in line
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"s": spec.to_json()}))
    (checked,) = check_file(path)
    assert len(but_for_rows(checked.suspicious)) == 2
    shown = CliRunner().invoke(app, ["check", str(path)])
    assert shown.exit_code == 0
    assert shown.output.startswith("s.json: s: ok (doubtful: agent.algorithm.action_policy = ")


def test_a_spec_with_problems_is_not_doubted_on_top(caplog):
    raw = q_learning("DQN", **GREEDY, agent__algorithm__gamma=2)
    with caplog.at_level(logging.WARNING), pytest.raises(Exception, match="gamma"):
        parse_spec("s", raw)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("name", "norm", "doubted"),
    [
        ("CrossQ", None, True),
        ("CrossQ", "LazyBatchRenorm1d", False),
        ("CrossQ", "LazyBatchNorm1d", False),
        ("SoftActorCritic", None, False),
    ],
)
def test_crossq_without_batch_norm_is_doubted(name, norm, doubted):
    raw = soft(name)
    norms = [{norm: None}] if norm else []
    layers = [{"LazyLinear": {"out_features": 8}}, *norms, {"ReLU": None}]
    raw["agent"]["net"] = {
        "type": "TorchArcNet",
        "arc": {"modules": {"body": {"Sequential": layers}}},
        "optim_spec": {"name": "GlobalAdam", "lr": 1e-3},
    }
    found = [line for line in suspicious(raw) if line.startswith("agent.net.arc")]
    assert bool(found) == doubted
    assert all("LazyBatchRenorm1d" in line for line in found)


def replaying(start, num_envs=4, frequency=4, **changes):
    keys = {
        "training_start_step": start,
        "training_frequency": frequency,
        "training_batch_iter": 1,
        **changes,
    }
    return q_learning(
        "DQN",
        env__num_envs=num_envs,
        **{f"agent__algorithm__{key}": value for key, value in keys.items()},
    )


@given(
    start=st.integers(0, 60),
    num_envs=st.integers(1, 9),
    frequency=st.integers(1, 40),
    ratio=st.sampled_from([None, 0.02, 0.3, 1.0, 2.5]),
)
def test_the_first_replayed_event_is_where_the_schedule_has_it(start, num_envs, frequency, ratio):
    schedule = TrainingSchedule(frequency, start, 1, ratio)
    first = next(n for n in itertools.count(num_envs, num_envs) if schedule.due(n - num_envs, n))
    raw = replaying(start, num_envs, frequency, update_to_data=ratio)
    raw["env"]["max_frame"] = first
    assert not [line for line in parse("s", raw).suspicious if line.startswith("env.max_frame")]
    if first > num_envs:
        raw["env"]["max_frame"] = first - 1
        parsed = parse("s", raw)  # some are refused by a single key
        assert parsed.problems or f"after {first} frames" in but_for_rows(parsed.suspicious)[-1]


@pytest.mark.parametrize(
    ("raw", "first"),
    [
        (ppo(env__num_envs=8, agent__algorithm__time_horizon=32), 256),
        (actor_critic(env__num_envs=4, agent__algorithm__training_frequency=4), 16),
        (replaying(start=101, frequency=100), 200),
        (replaying(start=101, frequency=1), 104),
        (replaying(start=10, update_to_data=0.02), 60),
    ],
)
def test_a_budget_that_ends_before_the_first_training_event_is_doubted(raw, first):
    raw["env"]["max_frame"] = first - 1
    (suspicion,) = (line for line in suspicious(raw) if line.startswith("env.max_frame"))
    assert f"after {first} frames" in suspicion
    raw["env"]["max_frame"] = first
    assert not [line for line in suspicious(raw) if line.startswith("env.max_frame")]


@pytest.mark.parametrize(("scale", "copied"), [("linear", 16), ("strong", 16), ("weak", 8)])
def test_a_target_is_doubted_as_each_rank_has_it(scale, copied):
    """Of 16 frames of all, a rank makes 8, as many as lie between two of its training events."""
    ranks = {"distributed": "all_reduce", "max_session": 2, "scale": scale}
    for frames in (8, 16, 18):
        raw = following(4, 8, frames)
        raw["meta"] |= ranks
        found = suspicious(raw)
        assert bool(found) == (frames <= copied)
        if found:
            told = "each rank has" in found[0]
            assert told == (scale != "weak")


def test_ranks_share_the_budget_that_they_gather_a_rollout_in():
    """A rank of ActorCritic has the whole of it with "linear"; with "strong" its share."""
    for scale, frames in (("linear", 1024), ("weak", 1024), ("strong", 256)):
        raw = actor_critic(
            agent__algorithm__training_frequency=32,
            env__num_envs=8,
            meta__distributed="all_reduce",
            meta__max_session=4,
            meta__scale=scale,
        )
        for max_frame, doubted in ((frames - 1, True), (frames, False)):
            raw["env"]["max_frame"] = max_frame
            assert any(line.startswith("env.max_frame") for line in suspicious(raw)) == doubted


def test_hogwild_workers_share_the_budget_that_they_learn_in():
    optimizer = {"name": "GlobalAdam", "lr": 1e-3}
    alone = ppo(env__max_frame=300, env__num_envs=8, agent__algorithm__time_horizon=32)
    together = ppo(
        env__max_frame=300,
        env__num_envs=8,
        agent__algorithm__time_horizon=32,
        agent__net__optim_spec=optimizer,
        meta__distributed="shared",
        meta__max_session=2,
    )
    assert not suspicious(alone)
    assert "256 frames of each worker" in suspicious(together)[0]
