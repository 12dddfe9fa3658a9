"""The Random agent's mean returns shipped with the lab.

They save each training from sharing its cores with a hundred random episodes. They are measured
by `bench.random_returns`.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slm_lab.storage.provenance import installed

if TYPE_CHECKING:
    from slm_lab.spec.schema.env import EnvSpec

DATA = Path(__file__).with_name("shipped_returns.json")
LEARNER_ONLY = frozenset({"life_loss_info"})
"""Arguments that do not change the returns of whole games."""


def environment_key(spec: "EnvSpec", leave_out: frozenset[str] = frozenset()) -> str:
    """The environment, and the arguments and wrappers that change its raw returns; `leave_out`
    names arguments that do not."""
    kept = {key: value for key, value in spec.kwargs.items() if key not in leave_out}
    arguments = json.dumps(kept, sort_keys=True, default=str)
    wrappers = f" {json.dumps(spec.wrapped_by, sort_keys=True)}" if spec.wrappers else ""
    return f"{spec.name} max_t={spec.max_t} {arguments}{wrappers}"


def shipped_random_return(spec: "EnvSpec") -> float | None:
    """The shipped mean return; None without one, or with another major version of the simulator."""
    entry = _shipped().get(environment_key(spec, LEARNER_ONLY))
    if entry is None or spec.backend != "gymnasium":
        return None
    packages = entry["packages"]
    if any(_major(package) != measured.partition(".")[0] for package, measured in packages.items()):
        return None
    return float(entry["return"])


@cache
def _shipped() -> Mapping[str, Any]:
    entries: Mapping[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return entries


def _major(package: str) -> str:
    return (installed(package) or "").partition(".")[0]
