"""Checks that a checkpoint matches the agent that the run folder's spec builds.

They differ only if that spec was edited. Non-finite weights and statistics are rejected as well.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import Optimizer
from slm_lab.core.errors import UnusableCheckpointError
from slm_lab.core.types import FloatArray, StateDict


def check_fits(
    snapshot: StateDict,
    networks: Mapping[str, FlatParameters],
    statistics: FloatArray,
    file: Path,
) -> None:
    """Raises CheckpointError if the snapshot in `file`, of a run folder, is of another agent, or
    has non-finite weights or statistics.

    The spec builds `networks` (flat vectors by name) and the normalisers' `statistics` (S,). The
    message names the folder, the file and the first difference.
    """
    difference = _difference_of_networks(snapshot["flats"], networks)
    saved = len(snapshot["statistics"])
    if difference is None and saved != len(statistics):
        difference = (
            f"the normalisers (env.normalize_obs, env.normalize_reward) were saved with {saved} "
            f"statistics and are built with {len(statistics)}"
        )
    _refuse(file, difference)
    check_finite(snapshot["flats"], file)
    _refuse_non_finite("the statistics of the normalisers are", snapshot["statistics"], file)


def check_finite(flats: Mapping[str, StateDict], file: Path) -> None:
    """Raises CheckpointError if weights or running statistics of a network in `file` are NaN or
    infinite. `flats` are the states of the networks' flat vectors, by network."""
    for network, flat in flats.items():
        for what in ("vector", "statistics"):
            name = "weights" if what == "vector" else "running statistics"
            _refuse_non_finite(f"{name} of the network {network} are", flat[what], file)


def _refuse_non_finite(what: str, values: ArrayLike, file: Path) -> None:
    array = np.asarray(values)
    count = array.size - int(np.isfinite(array).sum())
    if count:
        raise UnusableCheckpointError(
            f"{file}: {what} not finite ({count} of {array.size}), so the agent cannot act; "
            "put back a copy, or start a new run"
        )


def check_optimizers(
    saved: Mapping[str, StateDict], built: Mapping[str, Optimizer], file: Path
) -> None:
    """Raises CheckpointError if the state in `file`, of a run folder, has other optimizers.

    The keys of `saved` and `built` are the optimised networks, as in `TrainState`.
    """
    for network, optimizer in built.items():
        mismatch = optimizer.mismatch(saved[network])
        if mismatch is not None:
            _refuse(file, f"the optimizer of the network {network} (optim_spec) was {mismatch}")


def _refuse(file: Path, difference: str | None) -> None:
    if difference is not None:
        raise UnusableCheckpointError(
            f"{file.parent.parent}: the spec in it was changed and no longer builds the agent in "
            f"{file.name}: {difference}; undo the change in its *_spec.json"
        )


def _difference_of_networks(
    saved: Mapping[str, StateDict], built: Mapping[str, FlatParameters]
) -> str | None:
    if set(saved) != set(built):
        return f"the saved networks are {_listed(saved)}, the spec builds {_listed(built)}"
    for network, flat in built.items():
        before = {name: list(shape) for name, shape in saved[network]["layout"]}
        now = {name: list(shape) for name, shape in flat.state_dict()["layout"]}
        for layer in dict.fromkeys([*before, *now]):
            if before.get(layer) != now.get(layer):
                return (
                    f"{layer} of the network {network} was saved as {_shown(before.get(layer))} "
                    f"and is built as {_shown(now.get(layer))}"
                )
    return None


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"


def _shown(shape: Sequence[int] | None) -> str:
    return "nothing" if shape is None else "×".join(map(str, shape)) or "a number"
