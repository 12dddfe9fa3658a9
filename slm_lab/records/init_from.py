"""The beginning of a new run: weights and normalisers of a saved agent (`--init-from`).

Only files of tensors, numbers and JSON are read from the other run: no module that it
names is imported."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.core.errors import UsageError
from slm_lab.core.recorded import value_at
from slm_lab.core.types import FloatArray, StateDict
from slm_lab.env.adapter import PolicyAdapter
from slm_lab.records.checkpoints import Which
from slm_lab.records.lookup import open_trial
from slm_lab.session.build import place_on_cpu
from slm_lab.session.initial import (
    Values,
    begin_with,
    built_values,
    check_snapshot,
    normalizers_in,
    roles_of,
    taken_names,
    values_of,
)
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.checkpoint import reading, write_state
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
    normalize_obs: bool | Sequence[str]
    """The key `env.normalize_obs` that it was trained with."""
    parts: Sequence[str]
    """The parts to take; empty: everything."""
    net: Mapping[str, Any]
    """The block `agent.net` that it was trained with."""
    about: Mapping[str, Any]
    """Its run, trial, Session, agent, frame and checksum, for the record."""


@final
@dataclass(frozen=True)
class Initial:
    """The weights and statistics that a run begins with. It has the content of their
    file, and their record in the run's spec file."""

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
        origin = self.about
        agent = (
            f"{origin['agent']} agent of Session {origin['session']} at frame "
            f"{origin['frame']:,}"
        )
        statistics = [f"the statistics of {name}" for name in origin["normalizers"]]
        taken = ", ".join([*origin["taken"], *statistics])
        return (
            f"the run begins with {taken} of {origin['run']} ({agent})",
            *self.warnings,
        )


def find_parent(
    run: str,
    parts: Sequence[str],
    which: Which | None,
    session: int | None,
    data_dir: Path,
) -> Parent:
    """An agent of the run that `find_folder` finds, for a new run to begin with. By
    default it is the agent of the first Session with a checkpoint. Imports nothing that
    the run names. Raises UsageError, CheckpointError."""
    with open_trial(run, data_dir) as record:
        source = record.place
        checkpoints = record.checkpoints
        begun = checkpoints.begun()
        if not begun:
            raise UsageError(f"{source} has no checkpoint yet")
        if session not in (None, *begun):
            known = ", ".join(map(str, begun))
            raise UsageError(
                f"{source}: Session {session} has no agent; those with one: {known}"
            )
        agent = checkpoints.load(begun[0] if session is None else session, which)
        with reading(agent.file):
            check_snapshot(agent.snapshot, agent.file)
            values = values_of(agent.snapshot["flats"])
            statistics = np.asarray(agent.snapshot["statistics"], np.float64)
        spec = record.spec
    rewards = bool(value_at(spec, "env.normalize_reward", False))
    origin = {
        "run": source.resolve().name,
        "trial": record.trial,
        "session": agent.session,
        "agent": agent.which,
        "frame": agent.frame,
        "parent_sha256": agent.sha256,
    }
    return Parent(
        source=str(source),
        values=values,
        normalizers=normalizers_in(statistics, rewards),
        normalize_obs=value_at(spec, "env.normalize_obs", False),
        parts=tuple(parts),
        net=value_at(spec, "agent.net", {}) or {},
        about=origin,
    )


def taken_from(parent: Parent, spec: Spec) -> Initial:
    """The parts that a run of `spec` takes from `parent`. Raises UsageError if it does
    not fit the spec."""
    adapter = PolicyAdapter(spec.env)
    built = built_values(_agent(spec, adapter).learner.flats)
    names = taken_names(built, parent.values, parent.parts, parent.source)
    built_normalizers = normalizers_in(adapter.statistics, spec.env.normalize_reward)
    normalizers = _taken_normalizers(parent, built_normalizers, spec.env.normalize_obs)
    record = {
        **parent.about,
        "parts": list(parent.parts),
        "taken": list(parent.parts) or roles_of(names),
        "normalizers": list(normalizers),
    }
    values = {name: parent.values[name].clone() for name in names}
    warnings = tuple(_warnings(parent, spec))
    return Initial({"values": values, "normalizers": normalizers}, record, warnings)


def _warnings(parent: Parent, spec: Spec) -> Iterator[str]:
    net = spec.agent.net
    net_keys = {} if net is None else net.model_dump(mode="json")
    for key in NOT_SEEN_IN_SHAPES:
        before = parent.net.get(key)
        now = net_keys.get(key)
        if key in parent.net and before != now:
            yield (
                f"agent.net.{key} is {json.dumps(now)}, and was {json.dumps(before)} "
                f"in {parent.source}: the same weights compute something else"
            )


def check_initial(run_dir: RunDir, spec: Spec) -> None:
    """Raises CheckpointError if what the runs in `run_dir` begin with does not fit
    `spec`. Does nothing if they begin with fresh weights."""
    file = run_dir.initial_file
    if file.is_file():
        adapter = PolicyAdapter(spec.env)
        rewards = spec.env.normalize_reward
        begin_with(file, _agent(spec, adapter), adapter.statistics, rewards)


def _agent(spec: Spec, adapter: PolicyAdapter) -> LearningAgent:
    acting = place_on_cpu(spec).agent.for_acting()
    spaces = adapter.layout, adapter.action_space
    return build_agent(acting, *spaces, 1, AgentSeeds(0, 0, 0))


def _taken_normalizers(
    parent: Parent, built: Mapping[str, FloatArray], normalize_obs: bool | Sequence[str]
) -> dict[str, FloatArray]:
    """The statistics that are taken. Both runs must normalise the same parts of
    observations: a network that has learned from normalised numbers knows no others."""
    if _names(parent.normalize_obs) != _names(normalize_obs):
        trained_with = json.dumps(parent.normalize_obs)
        raise UsageError(
            f"--init-from: {parent.source} was trained with {KEYS['observations']} = "
            f"{trained_with}; set it to {trained_with}"
        )
    taken = {name: part for name, part in parent.normalizers.items() if name in built}
    for name, part in taken.items():
        if len(part) != len(built[name]):
            there = len(part) // 2
            here = len(built[name]) // 2
            raise UsageError(
                f"--init-from: the statistics of {name} ({KEYS[name]}) are of {there} "
                f"numbers in {parent.source} and of {here} in this spec; both need "
                "observations of one shape"
            )
    return taken


def _names(normalize_obs: bool | Sequence[str]) -> bool | frozenset[str]:
    """The key without the order of its names."""
    if isinstance(normalize_obs, bool):
        return normalize_obs
    return frozenset(normalize_obs)
