"""SLM Lab: a spec-driven deep reinforcement learning lab."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slm_lab.api.agent import Agent, Episodes, load
    from slm_lab.api.run import Run, load_run
    from slm_lab.api.train import (
        AbTest,
        Comparison,
        Search,
        ab,
        compare,
        fork,
        search,
        train,
    )
    from slm_lab.core.errors import TrainingFailed

__version__ = "0.1.0"

__all__ = [
    "AbTest",
    "Agent",
    "Comparison",
    "Episodes",
    "Run",
    "Search",
    "TrainingFailed",
    "__version__",
    "ab",
    "compare",
    "fork",
    "load",
    "load_run",
    "search",
    "train",
]

_MODULES = {
    "api.agent": ("Agent", "Episodes", "load"),
    "api.run": ("Run", "load_run"),
    "api.train": (
        "AbTest",
        "Comparison",
        "Search",
        "ab",
        "compare",
        "fork",
        "search",
        "train",
    ),
    "core.errors": ("TrainingFailed",),
}


def __getattr__(name: str) -> Any:
    """Imports the lab, and torch, where one of its names is first used."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"slm_lab.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
