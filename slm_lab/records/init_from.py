"""What a new run begins with: weights and normalisers of a saved agent (`--init-from`).

Only files of tensors, numbers and JSON are read from the other run: no module that it
names is imported."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from slm_lab.agent.agent import Agent
from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.core.errors import UsageError
from slm_lab.core.types import FloatArray, StateDict
from slm_lab.env.adapter import PolicyAdapter
from slm_lab.session.build import on_cpu
from slm_lab.session.initial import (
    Values,
    begin_with,
    built_values,
    normalizers_in,
    roles_of,
    taken_names,
)
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.checkpoint import write_state
from slm_lab.storage.run_dir import RunDir

NOT_SEEN_IN_SHAPES = (
    "type",
    "hid_layers_activation",
    "out_layer_activation",
    "norm_place",
)
"""Keys of a net that change what its weights compute, and no shape."""
KEYS = {"observations": "env.normalize_obs", "rewards": "env.normalize_reward"}
"""The key that asks for each normaliser."""


@final
@dataclass(frozen=True)
class Parent:
    """A saved agent whose weights a new run takes."""

    source: str
    """The run folder, or the file of a shared run, for messages."""
    values: Values
    normalizers: Mapping[str, FloatArray]
    """The statistics of its observations and rewards, as far as they were
    normalised."""
    parts: Sequence[str]
    """What is to be taken; empty: everything."""
    net: Mapping[str, Any]
    """The block `agent.net` that it was trained with."""
    about: Mapping[str, Any]
    """Its run, trial, Session, agent, frame and checksum, for the record."""


@final
@dataclass(frozen=True)
class Initial:
    """What a run begins with: the file's content, and what the run's spec file
    records."""

    state: StateDict
    about: Mapping[str, Any]
    warnings: tuple[str, ...]

    def write(self, run_dir: RunDir) -> dict[str, Any]:
        """Writes the file into a new run folder; returns the record with its
        checksum."""
        saved = write_state(run_dir.initial_file, self.state)
        return {**self.about, "sha256": saved.sha256}

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user: what it begins with, and warnings."""
        about = self.about
        agent = (
            f"{about['agent']} agent of Session {about['session']} at frame "
            f"{about['frame']:,}"
        )
        statistics = [f"the statistics of {name}" for name in about["normalizers"]]
        taken = ", ".join([*about["taken"], *statistics])
        return (
            f"the run begins with {taken} of {about['run']} ({agent})",
            *self.warnings,
        )


def taken_from(parent: Parent, spec: Spec) -> Initial:
    """What a run of `spec` takes from `parent`. Raises UsageError if it does not fit
    the spec."""
    adapter = PolicyAdapter(spec.env)
    built = built_values(_agent(spec, adapter).learner.flats)
    names = taken_names(built, parent.values, parent.parts, parent.source)
    own = normalizers_in(adapter.statistics, spec.env.normalize_reward)
    normalizers = _taken_normalizers(parent, own)
    about = {
        **parent.about,
        "parts": list(parent.parts),
        "taken": list(parent.parts) or roles_of(names),
        "normalizers": list(normalizers),
    }
    values = {name: parent.values[name].clone() for name in names}
    warnings = tuple(_warnings(parent, spec))
    return Initial({"values": values, "normalizers": normalizers}, about, warnings)


def _warnings(parent: Parent, spec: Spec) -> Iterator[str]:
    net = spec.agent.net
    own = {} if net is None else net.model_dump(mode="json")
    for key in NOT_SEEN_IN_SHAPES:
        before = parent.net.get(key)
        now = own.get(key)
        if key in parent.net and before != now:
            yield (
                f"agent.net.{key} is {json.dumps(now)}, and was {json.dumps(before)} "
                f"in {parent.source}: the same weights compute something else"
            )


def check_initial(run_dir: RunDir, spec: Spec) -> None:
    """Raises CheckpointError if what the runs in `run_dir` begin with does not fit
    `spec`; does nothing if they begin with fresh weights."""
    file = run_dir.initial_file
    if file.is_file():
        adapter = PolicyAdapter(spec.env)
        rewards = spec.env.normalize_reward
        begin_with(file, _agent(spec, adapter), adapter.statistics, rewards)


def _agent(spec: Spec, adapter: PolicyAdapter) -> Agent:
    acting = on_cpu(spec).agent.for_acting()
    spaces = adapter.observation_space, adapter.action_space
    return build_agent(acting, *spaces, 1, AgentSeeds(0, 0, 0))


def _taken_normalizers(
    parent: Parent, own: Mapping[str, FloatArray]
) -> dict[str, FloatArray]:
    """The statistics that are taken. Those of observations must be in both runs or in
    neither: a network that has learned from normalised observations knows no others."""
    was_normalized = "observations" in parent.normalizers
    if was_normalized != ("observations" in own):
        with_or_without = "with" if was_normalized else "without"
        raise UsageError(
            f"--init-from: {parent.source} was trained {with_or_without} "
            f"{KEYS['observations']}; set it to {str(was_normalized).lower()}"
        )
    taken = {name: part for name, part in parent.normalizers.items() if name in own}
    for name, part in taken.items():
        if len(part) != len(own[name]):
            there, here = (len(each) // 2 for each in (part, own[name]))
            raise UsageError(
                f"--init-from: the statistics of {name} ({KEYS[name]}) are of {there} "
                f"numbers in {parent.source} and of {here} in this spec; both need "
                "observations of one shape"
            )
    return taken
