"""The blocks of a spec, and the evaluator of all rules and checks between them. Blocks
are validated separately, so that problems in one do not hide the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from slm_lab.core.errors import Problem
from slm_lab.spec.budget import resolved
from slm_lab.spec.modes import words_of
from slm_lab.spec.schema.agent import PARTS, AgentSpec, optimizer_paths
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.meta import ACTORS, MetaSpec
from slm_lab.spec.schema.net import NetSpec
from slm_lab.spec.schema.parts import EncoderBlock
from slm_lab.spec.schema.rules import (
    Facts,
    Rule,
    UnknownBlockError,
    broken_rules,
    is_within,
    known,
)
from slm_lab.spec.schema.spec import Spec

RECORDED_OPTIMIZERS = frozenset({"Adam", "GlobalAdam", "AdamW"})
"""Optimizers whose steps a GPU replays as CUDA graphs."""

VALIDATORS: dict[str, Callable[[Any], Any]] = {
    **{key: kind.validate for key, kind in PARTS.items()},
    "env": EnvSpec.model_validate,
    "meta": MetaSpec.model_validate,
}

IN_FILE_ORDER = (
    "agent.algorithm",
    "agent.memory",
    "agent.net",
    "agent.critic_net",
    "env",
    "meta",
)


@dataclass(frozen=True)
class Blocks:
    """The blocks of a spec, and facts about them together; None for a block that is
    absent or has problems. `malformed` names the blocks that exist but have
    problems."""

    algorithm: AlgorithmSpec | None
    memory: MemorySpec | None
    net: NetSpec | None
    critic_net: NetSpec | None
    env: EnvSpec | None
    meta: MetaSpec | None
    malformed: frozenset[str] = frozenset()

    @property
    def agent(self) -> AgentSpec | None:
        """The algorithm with its nets; None without a net, or if one of the three has
        problems."""
        if self.algorithm is None or self.net is None or "critic_net" in self.malformed:
            return None
        return AgentSpec(
            algorithm=self.algorithm, net=self.net, critic_net=self.critic_net
        )

    @property
    def nets(self) -> dict[str, NetSpec]:
        """The nets by their path."""
        nets = {"agent.net": self.net, "agent.critic_net": self.critic_net}
        return {path: net for path, net in nets.items() if net is not None}

    @property
    def settings(self) -> MetaSpec:
        """`meta`, or its defaults if it has problems."""
        if self.meta is None:
            return MetaSpec()
        return self.meta

    @property
    def by_path(self) -> dict[str, Block]:
        """The valid blocks and their parts that may have rules, by their paths."""
        blocks: dict[str, Block | None] = {
            "agent.algorithm": self.algorithm,
            "agent.memory": self.memory,
            **self.nets,
            **self.recurrent_parts,
            "env": self.env,
            "meta": self.meta,
        }
        if self.meta is not None:
            actors = self.meta.actor_learner
            blocks |= {ACTORS: actors, f"{ACTORS}.correction": actors.correction}
        return {path: block for path, block in blocks.items() if block is not None}

    @property
    def recurrent_parts(self) -> dict[str, EncoderBlock]:
        """The encoders with a state by their paths."""
        return {
            f"{path}.{place}": encoder
            for path, net in self.nets.items()
            for place, encoder in net.recurrent_parts.items()
        }

    @property
    def recurrent_type(self) -> str:
        """The type of a recurrent net or encoder; "" without one."""
        blocks = [*self.nets.values(), *self.recurrent_parts.values()]
        return next((block.type for block in blocks if block.RECURRENT), "")

    @property
    def is_recurrent(self) -> bool:
        """Whether a net is recurrent."""
        return self.recurrent_type != ""

    @property
    def batch_normalised(self) -> bool:
        """Whether a net has batch normalisation."""
        return any(net.batch_normalised for net in self.nets.values())

    @property
    def has_noisy_net(self) -> bool:
        """Whether the net has noisy layers."""
        return self.net is not None and self.net.noisy

    @property
    def always_normalises(self) -> bool:
        """Whether the algorithm normalises its nets by itself."""
        return self.algorithm is not None and self.algorithm.ALWAYS_NORMALISES

    @property
    def has_replay(self) -> bool:
        """Whether the memory is for replay."""
        return self.memory is not None and self.memory.FAMILY == "replay"

    @property
    def counts_steps(self) -> bool:
        """Whether the memory makes rollouts of a fixed length."""
        return self.memory is None or self.memory.COUNTS_STEPS

    @property
    def num_step_returns(self) -> int:
        """The steps of a return."""
        if self.algorithm is None:
            return 1
        return self.algorithm.steps_of_return

    @property
    def trains_by_frequency(self) -> bool:
        """Whether `training_frequency` schedules training on a replay memory."""
        return known(self.algorithm).trains_by_frequency(self.settings)

    @property
    def begins_with_sequences(self) -> bool:
        """Whether the memory holds a sequence of each environment when training
        begins."""
        first = known(self.algorithm).first_stored(self.settings)
        needed = known(self.net).sequence_length * known(self.env).num_envs
        return first >= needed or self.settings.trains_freely

    @property
    def has_actors(self) -> bool:
        """Whether actors feed a learner that can learn from them."""
        algorithm = known(self.algorithm)
        able = algorithm.UNROLLS is not None and algorithm.TWIN == ""
        return able and known(self.meta).mode.has_learner

    @property
    def unroll_length(self) -> int:
        """Steps of each environment in one unroll of an actor."""
        return known(self.algorithm).unroll_length(known(self.meta))

    @property
    def unrecorded_optimizer(self) -> str:
        """An optimizer whose steps cannot be recorded; "" without one."""
        paths = optimizer_paths(self.net, self.critic_net)
        names = {optimizer.name for _, optimizer in paths}
        return min(names - RECORDED_OPTIMIZERS, default="")

    @property
    def step_schedules(self) -> str:
        """The keys of the algorithm and its nets that change over the run; "" without
        one."""
        keys = set(known(self.algorithm).schedules)
        for net in (self.net, self.critic_net):
            if net is not None:
                keys.update(*(of_role.schedules for of_role in net.for_roles))
        return ", ".join(sorted(keys))

    @property
    def modes_with_ranks(self) -> str:
        """The words of modes with ranks."""
        return ", ".join(words_of(lambda mode: mode.has_ranks))

    @property
    def modes_on_clusters(self) -> str:
        """The words of modes that can run on a cluster."""
        return ", ".join(words_of(lambda mode: mode.cluster_launch))

    @property
    def modes_in_virtual_time(self) -> str:
        """The words of modes whose Sessions can run one at a time."""
        return ", ".join(words_of(lambda mode: mode.in_virtual_time))


Check: TypeAlias = Callable[[Blocks], Iterable[Problem]]
"""A check of blocks together. It is skipped when it asks for a block that is not
`known`."""


def findings(
    blocks: Blocks, kinds: tuple[type[Rule], ...], checks: Iterable[Check]
) -> list[Problem]:
    """The problems that the checks find, and the broken rules of these kinds. They are
    in the order of the blocks in a file."""
    return sorted(_every(blocks, kinds, checks), key=_place)


def _every(
    blocks: Blocks, kinds: tuple[type[Rule], ...], checks: Iterable[Check]
) -> Iterator[Problem]:
    for check in checks:
        try:
            yield from list(check(blocks))
        except UnknownBlockError:
            continue
    for path, block in blocks.by_path.items():
        yield from broken_rules(kinds, Facts(path, block, blocks))


def _place(problem: Problem) -> int:
    holders = [
        place
        for place, block in enumerate(IN_FILE_ORDER)
        if is_within(problem.path, block)
    ]
    if holders:
        return holders[0]
    return len(IN_FILE_ORDER)


def blocks_of(spec: Spec) -> Blocks:
    """The blocks of a spec without problems."""
    agent = spec.agent
    return Blocks(
        algorithm=agent.algorithm,
        memory=agent.memory,
        net=agent.net,
        critic_net=agent.critic_net,
        env=spec.env,
        meta=spec.meta,
    )


def well_formed_blocks(raw: Mapping[str, Any]) -> Blocks:
    """The valid blocks of a spec with problems."""
    raw = resolved(raw)
    agent = raw.get("agent")
    parts = {} if not isinstance(agent, Mapping) else agent
    whole = {**parts, "env": raw.get("env"), "meta": raw.get("meta", {})}
    valid: dict[str, Any] = dict.fromkeys(VALIDATORS)
    malformed: set[str] = set()
    for block, validate in VALIDATORS.items():
        if whole.get(block) is None:
            continue
        try:
            valid[block] = validate(whole[block])
        except (ValidationError, PydanticCustomError):
            malformed.add(block)
    return Blocks(**valid, malformed=frozenset(malformed))
