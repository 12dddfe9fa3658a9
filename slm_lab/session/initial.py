"""The weights that a new run takes from another: whole networks or parts of them, by
name.

A name begins with the network's role, `net`, `critic` or `alpha`. So the bodies of a
policy and of a Q-network have the same names. One algorithm can begin with the body of
another.

A checkpoint fits if it has the networks that the spec builds, all finite."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.optim.flat import MOMENTS, FlatParameters, saved_values
from slm_lab.core.errors import UnusableCheckpointError, UsageError
from slm_lab.core.registry import suggestion
from slm_lab.core.types import FloatArray, StateDict
from slm_lab.env.convert.normalize import RunningStatistics
from slm_lab.storage.checkpoint import read_initial, reading


def check_fits(
    snapshot: StateDict,
    networks: Mapping[str, FlatParameters],
    statistics: FloatArray,
    file: Path,
) -> None:
    """Raises CheckpointError if the snapshot in `file`, of a run folder, is of another
    agent. It does so too for weights or statistics that are not finite. The spec builds
    `networks` (flat vectors by name) and the normalisers' `statistics` (S,). The
    message names the folder, the file and the first difference."""
    for difference in network_differences(snapshot, networks, statistics):
        raise UnusableCheckpointError(
            f"{file.parent.parent}: the spec in it was changed and no longer builds "
            f"the agent in {file.name}: {difference}; undo the change in its "
            "*_spec.json"
        )
    check_snapshot(snapshot, file)


def check_snapshot(snapshot: StateDict, file: Path) -> None:
    """Raises CheckpointError if weights or statistics of the agent in `file` are not
    finite."""
    check_finite(snapshot["flats"], file)
    _check_finite("the statistics of the normalisers are", snapshot["statistics"], file)


def check_finite(flats: Mapping[str, StateDict], file: Path) -> None:
    """Raises CheckpointError if weights or running statistics of a network in `file`
    are NaN or infinite. `flats` are the states of the networks' flat vectors, by
    network."""
    for network, flat in flats.items():
        _check_finite(f"weights of the network {network} are", flat["vector"], file)
        _check_finite(
            f"running statistics of the network {network} are", flat["statistics"], file
        )


def _check_finite(what: str, values: ArrayLike, file: Path) -> None:
    array = np.asarray(values)
    count = array.size - int(np.isfinite(array).sum())
    if count:
        raise UnusableCheckpointError(
            f"{file}: {what} not finite ({count} of {array.size}), so the agent "
            "cannot act; put back a copy, or start a new run"
        )


def network_differences(
    snapshot: StateDict, networks: Mapping[str, FlatParameters], statistics: FloatArray
) -> Iterator[str]:
    """How `networks` and normalisers differ in shape from those that were saved."""
    flats = snapshot["flats"]
    if set(flats) != set(networks):
        saved, built = (
            ", ".join(sorted(names)) or "none" for names in (flats, networks)
        )
        yield f"the saved networks are {saved}, the spec builds {built}"
    for network, flat in networks.items():
        layouts = flats[network]["layout"], flat.state_dict()["layout"]
        before, now = (
            {layer: list(shape) for layer, shape in layout} for layout in layouts
        )
        for layer in dict.fromkeys([*before, *now]):
            if before.get(layer) != now.get(layer):
                yield (
                    f"{layer} of the network {network} was saved as "
                    f"{_shown(before.get(layer))} and is built as "
                    f"{_shown(now.get(layer))}"
                )
    if len(snapshot["statistics"]) != len(statistics):
        yield (
            "the normalisers (env.normalize_obs, env.normalize_reward) were saved "
            f"with {len(snapshot['statistics'])} statistics and are built with "
            f"{len(statistics)}"
        )


def _shown(shape: Sequence[int] | None) -> str:
    if shape is None:
        return "nothing"
    return "×".join(map(str, shape)) or "a number"


Values: TypeAlias = Mapping[str, Tensor]
"""Parameters and running statistics of all networks, by name."""

POLICIES = ("actor", "actor_critic", "q")
"""The keys of the networks that `agent.net` describes."""
AROUND = re.compile(r"\bnet\.|(?<=\bbody\.)tail\.")
"""Matches what a layer's name gains where other layers lie around it, such as encoders
of parts."""
OUTPUTS = ("heads", "tails", "scale", *MOMENTS)
"""The names of layers and buffers that depend on an output. All others are the body of
a network."""
BODY = ".body"
TUNED = "alpha"
"""The role of SAC's temperature. It is taken where both runs tune it."""


def built_values(networks: Mapping[str, FlatParameters]) -> Values:
    """The values of an agent's networks: views, which a copy into them changes."""
    return _flatten_names(
        {network: flat.named_values() for network, flat in networks.items()}
    )


def values_of(flats: Mapping[str, StateDict]) -> Values:
    """The values in the saved networks of a checkpoint. Raises ValueError if they are
    damaged."""
    return _flatten_names(
        {network: saved_values(flat) for network, flat in flats.items()}
    )


def normalizers_in(
    statistics: FloatArray, normalizes_reward: bool
) -> dict[str, FloatArray]:
    """The normalisers' statistics (S,) as parts: "observations" and "rewards",
    views."""
    end = len(statistics) - RunningStatistics.length(1) * normalizes_reward
    parts = {"observations": statistics[:end], "rewards": statistics[end:]}
    return {name: part for name, part in parts.items() if len(part)}


def taken_names(
    built: Values, saved: Values, parts: Sequence[str], source: str
) -> list[str]:
    """The names of the values that a run takes from `source`: the names in `parts`, or
    all. Raises UsageError for a part that is missing, or of another shape, with both
    shapes."""
    if not built:
        raise UsageError("--init-from: the algorithm of the spec has no network")
    wanted = list(parts) or [role for role in _roles(built) if role != TUNED]
    names: list[str] = []
    for part in wanted:
        here = [name for name in built if _is_in(name, part)]
        there = [name for name in saved if _is_in(name, part)]
        for matches, where in ((here, "this spec"), (there, source)):
            if not matches:
                known = _parts_of(built if where == "this spec" else saved)
                hint = suggestion(part, known)
                raise UsageError(
                    f"--init-from: {where} has no part {part}{hint}; its parts are "
                    f"{', '.join(known)}; choose some with --init-part"
                )
        names += here
        differing = [
            name
            for name in dict.fromkeys([*here, *there])
            if _differ(name, built, saved)
        ]
        if differing:
            name = differing[0]
            more = len(differing) - 1
            others = ""
            if more:
                others = f" ({more} more differ)"
            raise UsageError(
                f"--init-from: {name} is {_shape(saved, name)} in {source} and "
                f"{_shape(built, name)} in this spec{others}; give both the same "
                f"layers{_fitting_part(built, saved)}"
            )
    if not parts:
        names += [name for name in built if _role(name) == TUNED and name in saved]
    return list(dict.fromkeys(names))


def roles_of(names: Iterable[str]) -> list[str]:
    """The networks that names belong to, each once."""
    return _roles(dict.fromkeys(names))


@torch.no_grad()
def begin_with(
    file: Path, agent: LearningAgent, statistics: FloatArray, normalizes_reward: bool
) -> None:
    """Copies the values and normalisers in `file` into a fresh agent and the
    `statistics` (S,) of its environments. Does nothing without the file. Raises
    CheckpointError if they do not fit."""
    if not file.is_file():
        return
    state = read_initial(file)
    with reading(file):
        values = built_values(agent.learner.flats)
        for name, value in state["values"].items():
            if value.shape != values[name].shape:
                raise ValueError(
                    f"{name} is {tuple(value.shape)}, not {tuple(values[name].shape)}"
                )
            values[name].copy_(value)
        parts = normalizers_in(statistics, normalizes_reward)
        for name, saved in state["normalizers"].items():
            parts[name][:] = saved


def _flatten_names(networks: Mapping[str, Values]) -> Values:
    return {
        full: value
        for network, values in networks.items()
        for full, value in zip(
            _full_names(network, values), values.values(), strict=True
        )
    }


def _full_names(network: str, names: Iterable[str]) -> list[str]:
    """The names of a network's values with its role. A layer has the name that it has
    without others around it, unless another has that too."""
    if network in POLICIES:
        shared = network == "actor_critic"  # its layers are "0", its moments "1"
        names = [name.removeprefix("0.") if shared else name for name in names]
        network = "net"
    inner = [AROUND.sub("", name) for name in names]
    if len(set(inner)) == len(inner):
        names = inner
    return [f"{network}.{name}" for name in names]


def _role(name: str) -> str:
    return name.partition(".")[0]


def _roles(values: Mapping[str, object]) -> list[str]:
    return list(dict.fromkeys(map(_role, values)))


def _is_in(name: str, part: str) -> bool:
    if part.endswith(BODY) and "." not in part.removesuffix(BODY):
        in_network = _role(name) == part.removesuffix(BODY)
        return in_network and not set(OUTPUTS) & set(name.split("."))
    return name == part or name.startswith(f"{part}.")


def _parts_of(values: Values) -> list[str]:
    """The parts to choose from: each network, its body, and the parts of its layers'
    names."""
    parts: dict[str, None] = {}
    for name in values:
        role, inside, *_ = name.split(".")
        body = f"{role}{BODY}"
        parts |= {role: None} | ({body: None} if _is_in(name, body) else {})
        parts[f"{role}.{inside}"] = None
    return list(parts)


def _fitting_part(built: Values, saved: Values) -> str:
    """Advice on a body, or a first layer, that has equal shapes in both; or nothing."""
    bodies = [f"{role}{BODY}" for role in _roles(built) if role != TUNED]
    layers = [
        name.rpartition(".")[0]
        for name in built
        if _is_in(name, f"{_role(name)}{BODY}")
    ]
    for part in (*bodies, *layers[:1]):
        names = [name for name in (*built, *saved) if _is_in(name, part)]
        if names and not any(_differ(name, built, saved) for name in names):
            return f", or take only what fits: --init-part {part}"
    return ""


def _differ(name: str, first: Values, second: Values) -> bool:
    return (
        name not in first
        or name not in second
        or first[name].shape != second[name].shape
    )


def _shape(values: Values, name: str) -> str:
    if name not in values:
        return "missing"
    return "×".join(map(str, values[name].shape)) or "a number"
