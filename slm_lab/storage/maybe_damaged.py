"""Reads JSON data of run folders that may be damaged: what cannot be read is left
out."""

from collections.abc import Mapping
from typing import Any

from slm_lab.core.files import read_object
from slm_lab.storage.run_dir import RunDir

MOST = 1e300
"""Larger numbers count as damaged."""
NUMBERS = (
    "final_return",
    "final_return_std",
    "final_return_episodes",
    "random_return",
    "random_return_episodes",
    "random_episode_length",
    "num_sessions",
)
"""Metrics that are numbers if they are known."""


def value_at(tree: Any, path: str, default: Any = None) -> Any:
    """The value at a dotted path of JSON data, maybe damaged; `default` if there is
    none of its type. A default that is a float stands for any finite number, None for
    any value."""
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    if isinstance(default, float):
        return tree if isinstance(tree, int | float) and abs(tree) < MOST else default
    return (
        default if default is not None and not isinstance(tree, type(default)) else tree
    )


def trial_metrics(run: RunDir, trial: int) -> dict[str, Any]:
    """The metrics of a Trial, without damaged numbers; empty before its end."""
    found = read_object(run.trial_metrics_file(trial))
    damaged = {key for key in NUMBERS if value_at(found, key, 0.0) != found.get(key)}
    return {key: each for key, each in found.items() if key not in damaged}
