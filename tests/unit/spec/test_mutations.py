"""Valid specs with one thing wrong: each is refused, at the right path, without a
traceback."""

import copy
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from slm_lab.core.errors import SpecError
from slm_lab.spec.load import parse_spec
from slm_lab.spec.parse import parse
from tests.unit.spec.spec_data import A3C, ALL, DQN, PPO, SIL, changed, set_at

OPEN = ("env", "agent.net.arc", "meta.search_scheduler", "search")
"""Blocks in which a misspelt key has another meaning, or none."""

LABELS = ("agent.name", "env.life_loss_info")
"""Keys that take anything."""


TRUE_MEANS_SIGN = ("env.clip_reward", "env.reward_scale")


class Mutation(NamedTuple):
    spec: str
    what: str
    path: str
    raw: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.spec}-{self.what}-{self.path}"


def nodes(
    tree: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key of a tree, lists left whole."""
    for key, value in tree.items():
        yield (*path, key), value
        if isinstance(value, dict):
            yield from nodes(value, (*path, key))


def with_value(
    raw: dict[str, Any], path: tuple[str, ...], value: Any
) -> dict[str, Any]:
    result = copy.deepcopy(raw)
    set_at(result, list(path), value)
    return result


def renamed(raw: dict[str, Any], path: tuple[str, ...], key: str) -> dict[str, Any]:
    result = copy.deepcopy(raw)
    block = result
    for part in path[:-1]:
        block = block[part]
    block[key] = block.pop(path[-1])
    return result


def in_open_block(path: tuple[str, ...]) -> bool:
    return any(".".join(path).startswith(f"{block}.") for block in OPEN)


def misspelt(name: str, raw: dict[str, Any]) -> Iterator[Mutation]:
    for path, _ in nodes(raw):
        if in_open_block(path) or len(path) == 1:
            continue
        key = path[-1][:-1] + "qz"
        yield Mutation(
            name, "misspelt", ".".join((*path[:-1], key)), renamed(raw, path, key)
        )


def of_wrong_type(name: str, raw: dict[str, Any]) -> Iterator[Mutation]:
    for path, value in nodes(raw):
        dotted = ".".join(path)
        if dotted in LABELS or dotted.startswith(("agent.net.arc", "search")):
            continue
        wrong: Any = [[]] if isinstance(value, dict) else {"a": "block"}
        yield Mutation(name, "type", dotted, with_value(raw, path, wrong))
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and path[0] != "search"
        ):
            if dotted not in TRUE_MEANS_SIGN:
                yield Mutation(
                    name, "true-for-number", dotted, with_value(raw, path, True)
                )
            yield Mutation(name, "text-for-number", dotted, with_value(raw, path, "3"))


def not_finite(name: str, raw: dict[str, Any]) -> Iterator[Mutation]:
    for path, value in nodes(raw):
        if isinstance(value, float):
            yield Mutation(name, "nan", ".".join(path), with_value(raw, path, math.nan))
            yield Mutation(name, "inf", ".".join(path), with_value(raw, path, math.inf))


def out_of_range(name: str, raw: dict[str, Any]) -> Iterator[Mutation]:
    for path, value in nodes(raw):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and ".".join(path) not in LABELS:
            yield Mutation(name, "negative", ".".join(path), with_value(raw, path, -1))


def without(name: str, raw: dict[str, Any], *dotted: str) -> Iterator[Mutation]:
    for path in dotted:
        result = copy.deepcopy(raw)
        *above, key = path.split(".")
        block = result
        for part in above:
            block = block[part]
        del block[key]
        yield Mutation(name, "missing", path, result)


NET = "agent.net"
ALGORITHM = "agent.algorithm"
ADAM = {"name": "Adam", "lr": 1e-3}
REPLAY = {"name": "Replay", "batch_size": 8, "max_size": 80}
EPISODES = {"name": "OnPolicyReplay"}
FIRST_LAYER = "net.arc.modules.body.Sequential.0"
# (spec, path of the problem, changes); the tables in checks/ have more of them with
# their words
COMBINATIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("PPO", "agent.memory.name", {"memory": REPLAY}),
    ("PPO", "agent.memory.name", {"memory": EPISODES}),
    ("SAC", "agent.memory.name", {"memory": EPISODES}),
    ("PPO", "agent.memory", {"memory": None}),
    ("PPO", "agent.net", {"net": None}),
    ("PPO", f"{ALGORITHM}.minibatch_size", {"algorithm.minibatch_size": 129}),
    ("PPO", f"{ALGORITHM}.minibatch_size", {"env.num_envs": 1}),
    ("DQN", f"{ALGORITHM}.explore_var_spec", {"algorithm.explore_var_spec": None}),
    (
        "PPO",
        f"{ALGORITHM}.action_policy",
        {"algorithm.action_policy": "boltzmann", "algorithm.action_pdtype": "Normal"},
    ),
    ("PPO", f"{ALGORITHM}.clip_val_loss", {"algorithm.clip_val_loss": True}),
    ("A3C", f"{ALGORITHM}.num_step_returns", {"algorithm.lam": 0.9}),
    (
        "PPO",
        f"{ALGORITHM}.clip_eps_spec.start_step",
        {"algorithm.clip_eps_spec.end_step": 10},
    ),
    ("PPO", f"{NET}.critic_optim_spec", {"net.critic_optim_spec": ADAM}),
    (
        "PPO",
        f"{NET}.critic_optim_spec",
        {"net.shared": True, "net.critic_optim_spec": ADAM},
    ),
    (
        "PPO",
        f"{NET}.critic_hid_layers",
        {"net.shared": True, "net.critic_hid_layers": [8]},
    ),
    ("PPO", f"{NET}.shared", {"net.shared": True, "net.critic_obs": ["x"]}),
    ("PPO", "agent.critic_net", {"net.shared": True, "critic_net": {"type": "MLPNet"}}),
    ("PPO", f"{NET}.type", {"net": {"type": "DuelingMLPNet"}}),
    ("PPO", f"{NET}.conv_hid_layers", {"net.conv_hid_layers": [[1, 1]]}),
    (
        "SIL",
        f"{NET}.actor_optim_spec",
        {"net": {"type": "MLPNet", "critic_optim_spec": ADAM}},
    ),
    (
        "SIL",
        "agent.memory.sil_replay_name",
        {"memory": {"name": "OnPolicyBatchReplay"}},
    ),
    ("SAC", f"{NET}.arc", {"net.arc": None}),
    (
        "SAC",
        f"{NET}.arc.graph.modules",
        {"net.arc.graph.modules": {"body": ["x"], "head": ["body"]}},
    ),
    (
        "SAC",
        f"agent.{FIRST_LAYER}.LazyLineal",
        {FIRST_LAYER: {"LazyLineal": {"out_features": 3}}},
    ),
    (
        "SAC",
        f"agent.{FIRST_LAYER}.LazyLinear.out_featurs",
        {FIRST_LAYER: {"LazyLinear": {"out_featurs": 3}}},
    ),
    ("A3C", f"{NET}.actor_optim_spec.name", {"net.actor_optim_spec": ADAM}),
    *(
        ("PPO", f"{NET}.optim_spec.name", {"net.optim_spec": {"name": name}})
        for name in ("LBFGS", "SparseAdam", "Adamm")
    ),
    *(
        (
            "PPO",
            f"{NET}.lr_scheduler_spec.name",
            {"net.lr_scheduler_spec": {"name": name}},
        )
        for name in ("LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler")
    ),
    ("PPO", f"{NET}.loss_spec.name", {"net.loss_spec": {"name": "CTCLoss"}}),
    ("PPO", f"{NET}.init_fn", {"net.init_fn": "constant_"}),
    ("PPO", f"{NET}.hid_layers_activation", {"net.hid_layers_activation": "rely"}),
    ("PPO", f"{ALGORITHM}.name", {"algorithm.name": "HydraDQN"}),
    ("PPO", "agent", {"agent": [PPO["agent"], PPO["agent"]]}),
    ("PPO", "env", {"env": [PPO["env"], PPO["env"]]}),
    ("DQN", "env.frame_op_len", {"env.frame_op": "stack"}),
]
SEARCHES = {
    "agent.algorithm.gama__uniform": [0.9, 0.99],
    "agent.algorithm.gamma__uniforn": [0.9, 0.99],
    "agent.algorithm.gamma__uniform": [0.99, 0.9],
    "agent.algorithm.lam__uniform": [0.9, 1.5],
    "agent.algorithm.lam__choice": 0.9,
    "agent.net.optim_spec.lr__loguniform": [0, 1],
    "agent.net.optim_spec.rl__loguniform": [0.1, 1],
    "agent.algorithm.training_epoch__randint": [1.5, 3],
    "agent.algorithm.training_epoch__qrandint": [2, 9, 2],
    "agent.net.optim_spec.lr__qrandint": [1, 2, 0.5],
    "agent.algorithm.training_epoch__qlograndint": [2, 8, 0],
    "agent.algorithm.training_epoch__lograndint": [1, 8, 1],
    "agent.algorithm.gamma__quniform": [0.9, 0.99, 0.02],
    "agent.net.optim_spec.lr__qloguniform": [1e-4, 1e-3, 1e-4, 0.5],
    "agent.algorithm.lam__qrandn": [0.9, 0.01],
    "agent.algorithm.lam__randn": [0.9, -0.01],
    "agent.algorithm.name.x__choice": [1],
    "agent.algorithm.gamma": 0.9,
}


def wrong_combinations() -> Iterator[Mutation]:
    for name, path, changes in COMBINATIONS:
        yield Mutation(name, "combined", path, changed(ALL[name], changes))
    for key, args in SEARCHES.items():
        yield Mutation(
            "PPO", "combined", f"search.{key}", changed(PPO, search={key: args})
        )


def all_mutations() -> list[Mutation]:
    found: list[Mutation] = []
    for name, raw in ALL.items():
        for kind in (misspelt, of_wrong_type, not_finite, out_of_range):
            found.extend(kind(name, raw))
    blocks = (
        "agent",
        "env",
        "agent.algorithm",
        "agent.algorithm.name",
        "env.name",
        "env.max_frame",
    )
    for name, raw in ALL.items():
        found.extend(without(name, raw, *blocks))
    found.extend(
        without(
            "PPO",
            PPO,
            "agent.memory",
            "agent.net",
            "agent.net.type",
            "agent.memory.name",
            "agent.algorithm.gamma",
            "agent.algorithm.time_horizon",
            "agent.algorithm.clip_eps_spec.start_val",
            "agent.algorithm.clip_eps_spec.end_val",
            "agent.net.optim_spec.name",
            "agent.net.loss_spec.name",
        )
    )
    found.extend(
        without(
            "DQN",
            DQN,
            "agent.memory.batch_size",
            "agent.memory.max_size",
            "agent.net.conv_hid_layers",
            "agent.algorithm.gamma",
        )
    )
    found.extend(without("A3C", A3C, "meta.confirm.top"))
    found.extend(without("SIL", SIL, "agent.net.hid_layers"))
    found.extend(wrong_combinations())
    return found


MUTATIONS = all_mutations()


@pytest.mark.parametrize("name", ALL)
def test_the_specs_that_are_mutated_are_valid(name):
    assert parse(name, ALL[name]).problems == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_every_mutation_is_refused_at_its_path(mutation):
    with pytest.raises(SpecError) as caught:
        parse_spec(mutation.spec, mutation.raw)
    problems = caught.value.problems
    paths = [problem.path for problem in problems]
    assert any(
        path == mutation.path or path.startswith(f"{mutation.path}.") for path in paths
    ), caught.value
    # A misspelt key may leave its block without a required one; anything else has one
    # cause.
    assert all(problem.message for problem in problems)
