"""A suspicious setting gives one line of warning, and the spec runs."""

import itertools
import json
import logging

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.agent.memory.memory import TrainingSchedule
from slm_lab.agent.net.target_network import TargetNetwork
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.spec.load import check_file, parse_spec
from slm_lab.spec.parse import parse
from tests.faults.lab import lab
from tests.support import actor_critic, ppo, q_learning, sarsa, soft
from tests.unit.spec.problems import assert_lines
from tests.unit.spec.spec_data import changed

GREEDY = {
    "agent__algorithm__action_policy": "default",
    "agent__algorithm__explore_var_spec": None,
}


def suspicious(raw):
    parsed = parse("s", raw)
    assert [str(problem) for problem in parsed.problems] == []
    return but_for_rows(parsed.suspicious)


def but_for_rows(found):
    """Small specs of tests write few rows."""
    return [line for line in found if not line.startswith("meta.log_frequency")]


def decay(start, end=None):
    name = "linear_decay"
    if end is None:
        name = "no_decay"
    return {"name": name, "start_val": start, "end_val": end, "end_step": 100}


def schedule(start, end=None):
    return {"agent__algorithm__explore_var_spec": decay(start, end)}


def replaying(start, num_envs=4, frequency=4, **changes):
    keys = {
        "training_start_step": start,
        "training_frequency": frequency,
        "training_batch_iter": 1,
        **changes,
    }
    keys = {f"algorithm.{key}": value for key, value in keys.items()}
    return changed(
        q_learning("DQN"),
        {"env.num_envs": num_envs, "net.update_frequency": 1000, **keys},
    )


def averaged(tau):
    return soft(
        "SoftActorCritic",
        agent__net__update_type="polyak",
        agent__net__critic_polyak_coef=tau,
    )


def following(num_envs, frequency, update_frequency, steps=1, **net):
    keys = {
        "env.num_envs": num_envs,
        "algorithm.training_frequency": frequency,
        "algorithm.training_batch_iter": steps,
        "net.update_frequency": update_frequency,
    }
    return changed(
        q_learning("DoubleDQN"), keys | {f"net.{k}": v for k, v in net.items()}
    )


def arc(name, *norms):
    layers = [
        {"LazyLinear": {"out_features": 8}},
        *({norm: None} for norm in norms),
        {"ReLU": None},
    ]
    net = {
        "type": "TorchArcNet",
        "arc": {"modules": {"body": {"Sequential": layers}}},
        "optim_spec": {"name": "GlobalAdam", "lr": 1e-3},
    }
    if name == "SoftActorCritic":
        net |= {"update_type": "polyak", "polyak_coef": 0.05}
    return changed(soft(name), net=net)


def budget(raw, max_frame, **meta):
    return changed(
        raw, {"env.max_frame": max_frame, **{f"meta.{k}": v for k, v in meta.items()}}
    )


def ranks(scale, max_session):
    return {"distributed": "all_reduce", "max_session": max_session, "scale": scale}


def published(make, publish_frequency):
    """256 frames in events of 8 steps in 4 environments: there are eight."""
    flow = {"unroll_length": 8, "publish_frequency": publish_frequency}
    mode = {"meta.distributed": "actor_learner", "meta.actor_learner": flow}
    return changed(make(), {"env.max_frame": 256, "env.num_envs": 4, **mode})


GREEDY_ACTIONS = "agent.algorithm.action_policy = 'default': … nothing is explored"
STAYS_0 = "agent.algorithm.explore_var_spec.start_val = 0: … nothing is explored"
HARDLY = (
    "agent.net.update_frequency = {}: … hardly differs from it; set a larger "
    "update_frequency"
)
A2C_RANKS = changed(
    actor_critic(), {"algorithm.training_frequency": 32, "env.num_envs": 8}
)
PPO_256 = changed(ppo(), {"env.num_envs": 8, "algorithm.time_horizon": 32})
SHARED = {"distributed": "shared", "max_session": 2}
FIRST_EVENTS = [
    (PPO_256, 256),
    (
        changed(actor_critic(), {"env.num_envs": 4, "algorithm.training_frequency": 4}),
        16,
    ),
    (replaying(start=101, frequency=100), 200),
    (replaying(start=101, frequency=1), 104),
    (replaying(start=10, update_to_data=0.02), 60),
]

ROWS = [
    # Acting without any exploration.
    (sarsa(), None),
    (sarsa(**GREEDY), GREEDY_ACTIONS),
    (q_learning("DQN", **GREEDY), GREEDY_ACTIONS),
    (
        q_learning("DQN", **GREEDY, agent__algorithm__action_pdtype="Argmax"),
        GREEDY_ACTIONS,
    ),
    (q_learning("DQN", **GREEDY, agent__algorithm__action_pdtype="Categorical"), None),
    (q_learning("DQN", **schedule(0.0)), STAYS_0),
    (q_learning("DQN", **schedule(0.0, 0.0)), STAYS_0),
    (q_learning("DQN", **schedule(0.0, 0.1)), None),
    (q_learning("DQN", **schedule(1.0, 0.0)), None),
    (ppo(), None),
    # A target that does not lag behind, with what is left of it.
    (following(4, 16, 16), HARDLY.format(16)),
    (following(4, 16, 16, steps=3), HARDLY.format(16)),
    (following(4, 16, 17), None),
    (following(4, 16, 1, update_type="polyak", polyak_coef=1.0), HARDLY.format(1)),
    (following(4, 16, 1, update_type="polyak", polyak_coef=0.9), None),
    (
        following(4, 16, 1, update_type="polyak", polyak_coef=decay(1.0, 0.01)),
        None,
    ),
    (
        soft(
            "SoftActorCritic",
            agent__net__update_type="replace",
            agent__net__polyak_coef=0.0,
        ),
        HARDLY.format(1),
    ),
    (soft("SoftActorCritic", agent__net__critic_update_type="polyak"), None),
    (averaged(0.9), None),
    (averaged(0.95), "…critic_polyak_coef = 0.95: …95.0% of the net … 0.05 here"),
    (
        averaged(decay(0.01, 0.95)),
        "…critic_polyak_coef = 0.95: …95.0% of the net … 0.05 here",
    ),
    (averaged(0.995), "…critic_polyak_coef = 0.995: …99.5% of the net … 0.005 here"),
    (soft("CrossQ", agent__net__polyak_coef=0.995), None),
    (soft("CrossQ"), None),
    (q_learning("VanillaDQN", agent__net__update_frequency=1), None),
    # With an exact ratio events are as far apart as it says.
    *(
        (
            changed(following(4, 1, frames), algorithm__update_to_data=ratio),
            f"agent.net.update_frequency = {frames}: " if frames in doubted else None,
        )
        for ratio, doubted in [(0.25, [1, 4]), (0.05, [1, 4, 16, 20]), (2.0, [1, 4])]
        for frames in (1, 4, 16, 20, 24, 100)
    ),
    # A rank makes 8 of 16 frames of all, as many as lie between two of its training
    # events.
    *(
        (
            changed(
                following(4, 8, frames),
                meta__distributed="all_reduce",
                meta__max_session=2,
                meta__scale=scale,
            ),
            None
            if frames > copied
            else f"agent.net.update_frequency = {frames}: the net is copied",
        )
        for scale, copied in [("linear", 16), ("strong", 16), ("weak", 8)]
        for frames in (8, 16, 18)
    ),
    # Weights that are never published.
    *((published(make, 8), None) for make in (ppo, actor_critic)),
    *(
        (
            published(make, 9),
            "meta.actor_learner.publish_frequency = 9: is more than the 8 training",
        )
        for make in (ppo, actor_critic)
    ),
    # CrossQ without batch normalisation.
    (arc("CrossQ"), "agent.net.arc…LazyBatchRenorm1d"),
    (arc("CrossQ", "LazyBatchRenorm1d"), None),
    (arc("CrossQ", "LazyBatchNorm1d"), None),
    (arc("SoftActorCritic"), None),
    # A budget that ends before the first training event.
    *(
        (budget(raw, first - 1), f"env.max_frame = {first - 1}: … after {first} frames")
        for raw, first in FIRST_EVENTS
    ),
    *((budget(raw, first), None) for raw, first in FIRST_EVENTS),
    # A rank of ActorCritic has the whole budget with "linear"; with "strong" its share.
    *(
        (
            budget(A2C_RANKS, frames - short, **ranks(scale, 4)),
            "env.max_frame = " if short else None,
        )
        for scale, frames in [("linear", 1024), ("weak", 1024), ("strong", 256)]
        for short in (0, 1)
    ),
    # Hogwild! workers share the budget that they learn in.
    (budget(PPO_256, 300), None),
    (budget(PPO_256, 300, **SHARED), "…256 frames of each worker"),
]


@pytest.mark.parametrize(("raw", "warning"), ROWS)
def test_a_suspicious_setting_is_a_warning(raw, warning):
    assert_lines(suspicious(raw), [] if warning is None else [warning])


@pytest.mark.parametrize("num_envs", [1, 4, 7])
def test_a_target_network_that_every_training_event_makes_equal_gets_a_warning(
    num_envs,
):
    """The warning holds exactly where the real training events make them equal."""
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
    """How many training events there are in 1000 frames, and how often the target is
    copied."""
    online, target = (FlatParameters(torch.nn.Linear(1, 1)) for _ in range(2))
    target_network = TargetNetwork(online, target, update_frequency=update_frequency)
    schedule = TrainingSchedule(frequency, 0)
    events = 0
    copies = 0
    for stored in range(num_envs, 1000, num_envs):
        if schedule.due(stored - num_envs, stored):
            online.vector.add_(1.0)
            target_network.update_after_event(stored)
            events += 1
            copies += torch.equal(online.vector, target.vector)
    return events, copies


def test_warnings_are_one_line_at_the_start_and_in_a_check(caplog, tmp_path):
    raw = q_learning(
        "DQN", **GREEDY, agent__net__update_frequency=4, meta__log_frequency=None
    )
    with caplog.at_level(logging.WARNING):
        spec = parse_spec("s", raw)
    (line,) = caplog.messages
    assert line.startswith(
        "s: suspicious setting: agent.algorithm.action_policy = 'default': "
    )
    assert "; agent.net.update_frequency = 4: " in line
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"s": spec.to_json()}))
    (checked,) = check_file(path)
    assert len(but_for_rows(checked.suspicious)) == 2
    shown = lab(path.parent, "spec", "check", path)
    assert shown.code == 0
    assert shown.both.startswith(
        "s.json: s: ok (suspicious: agent.algorithm.action_policy = "
    )


def test_a_spec_with_problems_has_no_warnings(caplog):
    raw = q_learning("DQN", **GREEDY, agent__algorithm__gamma=2)
    with caplog.at_level(logging.WARNING), pytest.raises(Exception, match="gamma"):
        parse_spec("s", raw)
    assert caplog.messages == []


@given(
    start=st.integers(0, 60),
    num_envs=st.integers(1, 9),
    frequency=st.integers(1, 40),
    ratio=st.sampled_from([None, 0.02, 0.3, 1.0, 2.5]),
)
def test_the_first_replayed_event_is_that_of_the_schedule(
    start, num_envs, frequency, ratio
):
    schedule = TrainingSchedule(frequency, start, 1, ratio)
    first = next(
        n for n in itertools.count(num_envs, num_envs) if schedule.due(n - num_envs, n)
    )
    raw = replaying(start, num_envs, frequency, update_to_data=ratio)
    raw["env"]["max_frame"] = first
    assert not [
        line for line in parse("s", raw).suspicious if line.startswith("env.max_frame")
    ]
    if first > num_envs:
        raw["env"]["max_frame"] = first - 1
        parsed = parse("s", raw)  # some are refused by a single key
        assert (
            parsed.problems
            or f"after {first} frames" in but_for_rows(parsed.suspicious)[-1]
        )


@pytest.mark.parametrize("normalize_obs", [False, True])
def test_simba_without_statistics_of_observations_is_suspicious(normalize_obs):
    net = {"type": "SimBaNet", "width": 8, "optim_spec": {"name": "Adam", "lr": 1e-3}}
    raw = ppo(agent__net=net, env__normalize_obs=normalize_obs)
    line = (
        "agent.net.type = 'SimBaNet': is without the running statistics of "
        "observations that are a part of SimBaNet; set env.normalize_obs"
    )
    assert (line in suspicious(raw)) == (not normalize_obs)
