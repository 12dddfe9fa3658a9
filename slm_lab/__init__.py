"""SLM Lab: a spec-driven deep reinforcement learning lab."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slm_lab.api.agent import Agent, Episodes, load
    from slm_lab.api.run import Run, load_run

__version__ = "0.1.0"

__all__ = ["Agent", "Episodes", "Run", "__version__", "load", "load_run"]

_MODULES = {"Agent": "agent", "Episodes": "agent", "load": "agent", "Run": "run", "load_run": "run"}


def __getattr__(name: str) -> Any:
    """Imports the lab, and torch, where one of its names is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"slm_lab.api.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
