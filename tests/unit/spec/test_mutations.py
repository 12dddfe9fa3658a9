"""Valid specs with one thing wrong: each is refused, at the right path, without a traceback."""

import copy
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from slm_lab.core.errors import SpecError
from slm_lab.spec.load import parse_spec
from slm_lab.spec.parse import parse
from tests.unit.spec.spec_data import A3C, ALL, DQN, PPO, SAC, SIL, set_at

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


def nodes(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key of a tree, lists left whole."""
    for key, value in tree.items():
        yield (*path, key), value
        if isinstance(value, dict):
            yield from nodes(value, (*path, key))


def with_value(raw: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
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
        yield Mutation(name, "misspelt", ".".join((*path[:-1], key)), renamed(raw, path, key))


def of_wrong_type(name: str, raw: dict[str, Any]) -> Iterator[Mutation]:
    for path, value in nodes(raw):
        dotted = ".".join(path)
        if dotted in LABELS or dotted.startswith(("agent.net.arc", "search")):
            continue
        wrong: Any = [[]] if isinstance(value, dict) else {"a": "block"}
        yield Mutation(name, "type", dotted, with_value(raw, path, wrong))
        if isinstance(value, int | float) and not isinstance(value, bool) and path[0] != "search":
            if dotted not in TRUE_MEANS_SIGN:
                yield Mutation(name, "true-for-number", dotted, with_value(raw, path, True))
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


def combined(name: str, raw: dict[str, Any], path: str, **values: Any) -> Mutation:
    """Values by path, dots written as two underscores; the problem is to be at `path`."""
    result = copy.deepcopy(raw)
    for key, value in values.items():
        set_at(result, key.split("__"), value)
    return Mutation(name, "combined", path, result)


def wrong_combinations() -> Iterator[Mutation]:
    net, algorithm = "agent.net", "agent.algorithm"
    adam = {"name": "Adam", "lr": 1e-3}
    yield combined(
        "PPO",
        PPO,
        "agent.memory.name",
        agent__memory={"name": "Replay", "batch_size": 8, "max_size": 80},
    )
    yield combined("PPO", PPO, "agent.memory.name", agent__memory={"name": "OnPolicyReplay"})
    yield combined("SAC", SAC, "agent.memory.name", agent__memory={"name": "OnPolicyReplay"})
    yield combined("PPO", PPO, "agent.memory", agent__memory=None)
    yield combined("PPO", PPO, "agent.net", agent__net=None)
    yield combined("PPO", PPO, f"{algorithm}.minibatch_size", agent__algorithm__minibatch_size=129)
    yield combined("PPO", PPO, f"{algorithm}.minibatch_size", env__num_envs=1)
    yield combined(
        "PPO", PPO, f"{algorithm}.action_pdtype", agent__algorithm__action_pdtype="Argmax"
    )
    yield combined(
        "DQN", DQN, f"{algorithm}.action_pdtype", agent__algorithm__action_pdtype="Normal"
    )
    yield combined("SAC", SAC, f"{algorithm}.action_pdtype", agent__algorithm__action_pdtype="Beta")
    yield combined(
        "DQN", DQN, f"{algorithm}.explore_var_spec", agent__algorithm__explore_var_spec=None
    )
    yield combined(
        "PPO",
        PPO,
        f"{algorithm}.action_policy",
        agent__algorithm__action_policy="boltzmann",
        agent__algorithm__action_pdtype="Normal",
    )
    yield combined("PPO", PPO, f"{algorithm}.clip_val_loss", agent__algorithm__clip_val_loss=True)
    yield combined("A3C", A3C, f"{algorithm}.num_step_returns", agent__algorithm__lam=0.9)
    yield combined("SAC", SAC, f"{algorithm}.log_alpha_max", agent__algorithm__log_alpha_max=-30)
    yield combined(
        "PPO",
        PPO,
        f"{algorithm}.clip_eps_spec.end_step",
        agent__algorithm__clip_eps_spec__end_step=10,
    )
    yield combined("PPO", PPO, f"{net}.critic_optim_spec", agent__net__critic_optim_spec=adam)
    yield combined(
        "PPO",
        PPO,
        f"{net}.critic_optim_spec",
        agent__net__shared=True,
        agent__net__critic_optim_spec=adam,
    )
    yield combined(
        "PPO",
        PPO,
        f"{net}.critic_hid_layers",
        agent__net__shared=True,
        agent__net__critic_hid_layers=[8],
    )
    yield combined(
        "PPO",
        PPO,
        "agent.critic_net",
        agent__net__shared=True,
        agent__critic_net={"type": "MLPNet"},
    )
    yield combined("PPO", PPO, f"{net}.type", agent__net={"type": "DuelingMLPNet"})
    yield combined("PPO", PPO, f"{net}.conv_hid_layers", agent__net__conv_hid_layers=[[1, 1]])
    yield combined(
        "SIL",
        SIL,
        f"{net}.actor_optim_spec",
        agent__net={"type": "MLPNet", "critic_optim_spec": adam},
    )
    yield combined(
        "SIL", SIL, "agent.memory.sil_replay_name", agent__memory={"name": "OnPolicyBatchReplay"}
    )
    yield combined("SAC", SAC, "agent.memory.max_size", agent__memory__max_size=255)
    yield combined("SAC", SAC, f"{net}.polyak_coef", agent__net__polyak_coef=0)
    yield combined("SAC", SAC, f"{net}.arc", agent__net__arc=None)
    yield combined(
        "SAC",
        SAC,
        f"{net}.arc.graph.modules",
        agent__net__arc__graph__modules={"body": ["x"], "head": ["body"]},
    )
    yield combined(
        "SAC",
        SAC,
        f"{net}.arc.modules.body.Sequential.0.LazyLineal",
        agent__net__arc__modules__body__Sequential=[{"LazyLineal": {"out_features": 3}}],
    )
    yield combined(
        "SAC",
        SAC,
        f"{net}.arc.modules.body.Sequential.0.LazyLinear.out_featurs",
        agent__net__arc__modules__body__Sequential=[{"LazyLinear": {"out_featurs": 3}}],
    )
    yield combined("A3C", A3C, f"{net}.optim_spec.name", agent__net__optim_spec=adam)
    yield combined("A3C", A3C, f"{net}.actor_optim_spec.name", agent__net__actor_optim_spec=adam)
    yield combined("A3C", A3C, "meta.max_run", meta__distributed=False)
    for optimizer in ("LBFGS", "SparseAdam", "Adamm"):
        yield combined(
            "PPO", PPO, f"{net}.optim_spec.name", agent__net__optim_spec={"name": optimizer}
        )
    for scheduler in ("LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler"):
        yield combined(
            "PPO",
            PPO,
            f"{net}.lr_scheduler_spec.name",
            agent__net__lr_scheduler_spec={"name": scheduler},
        )
    yield combined("PPO", PPO, f"{net}.loss_spec.name", agent__net__loss_spec={"name": "CTCLoss"})
    yield combined("PPO", PPO, f"{net}.init_fn", agent__net__init_fn="constant_")
    yield combined(
        "PPO", PPO, f"{net}.hid_layers_activation", agent__net__hid_layers_activation="rely"
    )
    yield combined("PPO", PPO, f"{algorithm}.name", agent__algorithm__name="HydraDQN")
    yield combined("PPO", PPO, "agent", agent=[PPO["agent"], PPO["agent"]])
    yield combined("PPO", PPO, "env", env=[PPO["env"], PPO["env"]])
    yield combined("DQN", DQN, "env.frame_op_len", env__frame_op="stack")
    yield combined(
        "PPO", PPO, "meta.search_scheduler.grace_perid", meta__search_scheduler={"grace_perid": 3}
    )
    search = {
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
        "agent.algorithm": {},
        "agent.algorithm.training_epoch__uniform": [1, 8],
        "agent.algorithm.training_epoch__qrandn": [4, 1, 0.5],
        "agent.algorithm.lam__normal": [0.99, 0.1],
        "meta.random_seed__choice": [0, 1],
        "meta.search_resources.cpu__choice": [1, 2],
        "name__choice": ["a", "b"],
    }  # fmt: skip
    for key, args in search.items():
        yield combined("PPO", PPO, f"search.{key}", search={key: args})


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
    found.extend(without("PPO", PPO, "agent.memory", "agent.net", "agent.net.type",
                         "agent.memory.name", "agent.algorithm.gamma",
                         "agent.algorithm.time_horizon", "agent.net.lr_scheduler_spec.frame",
                         "agent.algorithm.clip_eps_spec.start_val",
                         "agent.algorithm.clip_eps_spec.end_val",
                         "agent.algorithm.clip_eps_spec.end_step",
                         "agent.net.optim_spec.name", "agent.net.loss_spec.name"))  # fmt: skip
    found.extend(without("DQN", DQN, "agent.memory.batch_size", "agent.memory.max_size",
                         "agent.net.conv_hid_layers", "agent.algorithm.gamma"))  # fmt: skip
    found.extend(without("A3C", A3C, "meta.confirm.top"))
    found.extend(without("SIL", SIL, "agent.net.hid_layers"))
    found.extend(wrong_combinations())
    return found


MUTATIONS = all_mutations()


def test_there_are_enough_mutations():
    assert len(MUTATIONS) >= 200
    assert len({str(mutation) for mutation in MUTATIONS}) >= 200


@pytest.mark.parametrize("name", ALL)
def test_the_specs_that_are_mutated_are_valid(name):
    assert parse(name, ALL[name]).problems == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_every_mutation_is_refused_at_its_path(mutation):
    with pytest.raises(SpecError) as caught:
        parse_spec(mutation.spec, mutation.raw)
    problems = caught.value.problems
    paths = [problem.path for problem in problems]
    assert any(path == mutation.path or path.startswith(f"{mutation.path}.") for path in paths), (
        caught.value
    )
    # A misspelt key may leave its block without a required one; anything else has one cause.
    assert all(problem.message for problem in problems)
