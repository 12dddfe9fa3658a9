"""Checks that a checkpoint matches the agent that the run folder's spec builds.

They differ only if that spec was edited. Non-finite weights and statistics are rejected
as well."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.errors import UnusableCheckpointError
from slm_lab.core.types import FloatArray, StateDict


def check_fits(
    snapshot: StateDict,
    networks: Mapping[str, FlatParameters],
    statistics: FloatArray,
    file: Path,
) -> None:
    """Raises CheckpointError if the snapshot in `file`, of a run folder, is of another
    agent, or has non-finite weights or statistics. The spec builds `networks` (flat
    vectors by name) and the normalisers' `statistics` (S,). The message names the
    folder, the file and the first difference."""
    for difference in _differences(snapshot, networks, statistics):
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


def _differences(
    snapshot: StateDict, networks: Mapping[str, FlatParameters], statistics: FloatArray
) -> Iterator[str]:
    flats = snapshot["flats"]
    if set(flats) != set(networks):
        saved, built = (", ".join(sorted(each)) or "none" for each in (flats, networks))
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
