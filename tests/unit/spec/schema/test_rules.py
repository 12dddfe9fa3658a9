"""Rules between keys: what they name exists, and a plug-in's are evaluated."""

from typing import Annotated

import pytest
from pydantic import Field

from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.parse import parse
from slm_lab.spec.schema.algorithm import (
    ActionPolicy,
    AlgorithmSpec,
    OnPolicyLearningSpec,
)
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.meta import ActorLearnerSpec, CorrectionSpec, MetaSpec
from slm_lab.spec.schema.net import NetSpec
from slm_lab.spec.schema.rules import (
    Limit,
    Needed,
    NoEffect,
    Refused,
    Rule,
    Suspicious,
)
from slm_lab.spec.schema.schedule import ScheduleSpec
from slm_lab.spec.schema.scheduler import MODELS as SCHEDULERS
from tests.support import actor_critic
from tests.unit.spec.problems import messages
from tests.unit.spec.spec_data import changed

BASES = {
    "algorithm": AlgorithmSpec,
    "memory": MemorySpec,
    "net": NetSpec,
    "env": EnvSpec,
    "meta": MetaSpec,
    "blocks": Blocks,
}
REGISTERED = [
    registry.get(name).params
    for registry in (ALGORITHMS, MEMORIES, NETS)
    for name in registry.names()
]
SETTINGS = [EnvSpec, MetaSpec, ActorLearnerSpec, CorrectionSpec, ScheduleSpec]
RULES = [
    pytest.param(model, rule, path, id=f"{model.__name__}.{key}: {path}")
    for model in (*REGISTERED, *SETTINGS, *SCHEDULERS.values())
    for key, field in model.model_fields.items()
    for rule in field.metadata
    if isinstance(rule, Rule)
    for path in rule.paths
]


def has(model, name):
    return name in getattr(model, "model_fields", {}) or hasattr(model, name)


@pytest.mark.parametrize(("model", "rule", "path"), RULES)
def test_a_rule_names_facts_of_its_own_block_or_of_every_block_of_a_kind(
    model, rule, path
):
    block, _, names = path.rpartition(".") if "." not in path else path.partition(".")
    name = names.split(".")[0]
    fields = getattr(Blocks, "__dataclass_fields__", {})
    known = has(model, name) or has(BASES.get(block, model), name)
    assert known or (block == "blocks" and name in fields)


class WarmSpec(OnPolicyLearningSpec):
    warmup: Annotated[
        int | None,
        Needed("greed needs it", when="greed"),
        Limit(sign="<", of="env.max_frame"),
        NoEffect("greed is false", unless="greed"),
        Refused("is unlucky", value=13),
        Refused("is the luck of {env.name}", value=7),
        Suspicious("is short for {env.name}", value=3, unless="meta.rigorous_eval"),
    ] = Field(None)
    greed: bool = Field(False)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"greed": True, "warmup": 5}, None),
        ({"greed": True}, "warmup: is missing: greed needs it"),
        ({"warmup": 1000}, "warmup = 1000: must be < env.max_frame (1000)"),
        ({"warmup": 13}, "warmup = 13: is unlucky"),
        ({"greed": True, "warmup": 7}, "warmup = 7: is the luck of CartPole-v1"),
    ],
)
def test_the_rules_of_a_plug_in_are_checked(registries, keys, problem):
    ALGORITHMS.register("Warm", WarmSpec, "nowhere:Warm")
    raw = changed(actor_critic(), algorithm={"name": "Warm", "gamma": 0.9, **keys})
    raw["env"]["max_frame"] = 1000
    assert messages(raw) == ([] if problem is None else [f"agent.algorithm.{problem}"])


@pytest.mark.parametrize(("warmup", "episodes"), [(3, 0), (3, 4), (5, 0)])
def test_a_suspicious_value_of_a_plug_in_is_a_warning(registries, warmup, episodes):
    ALGORITHMS.register("Warm", WarmSpec, "nowhere:Warm")
    keys = {"name": "Warm", "gamma": 0.9, "greed": True, "warmup": warmup}
    raw = changed(actor_critic(), algorithm=keys)
    raw["meta"]["rigorous_eval"] = episodes
    notes = [line for line in parse("s", raw).suspicious if "warmup" in line]
    warning = "agent.algorithm.warmup = 3: is short for CartPole-v1"
    assert notes == ([warning] if (warmup, episodes) == (3, 0) else [])


class CautiousSpec(OnPolicyLearningSpec):
    """A plug-in that explores by another default."""

    action_policy: ActionPolicy = Field("epsilon_greedy")


class CertainSpec(CautiousSpec):
    """A plug-in whose actor is deterministic."""

    IS_DETERMINISTIC = True


@pytest.mark.parametrize(
    ("model", "keys", "problem"),
    [
        (CautiousSpec, {}, None),
        (
            CautiousSpec,
            {"action_pdtype": "Normal"},
            "action_policy = 'epsilon_greedy': is for discrete actions, but "
            "action_pdtype is Normal",
        ),
        (
            CautiousSpec,
            {"action_policy": "gaussian"},
            "action_policy = 'gaussian': adds noise to a deterministic actor; Cautious "
            "draws from a distribution: use default",
        ),
        (
            CertainSpec,
            {},
            "action_policy = 'epsilon_greedy': is for discrete actions; Cautious "
            "explores by gaussian",
        ),
    ],
)
def test_another_default_of_a_plug_in_keeps_the_rules(registries, model, keys, problem):
    ALGORITHMS.register("Cautious", model, "nowhere:Cautious")
    algorithm = {"name": "Cautious", "gamma": 0.9, "explore_var_spec": 0.1, **keys}
    raw = changed(actor_critic(), algorithm=algorithm)
    assert messages(raw) == ([] if problem is None else [f"agent.algorithm.{problem}"])
