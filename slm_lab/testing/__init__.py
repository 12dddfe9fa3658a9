"""Suites of tests that every part of the lab passes, for parts of other packages too.

A test module subclasses a contract and names its `cases`; pytest runs each property for
each case. docs/extending.md shows such a module. The suites need pytest:
`pip install "slm-lab[testing]"`."""

from slm_lab.core.errors import MissingExtraError

try:
    import pytest  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "slm_lab.testing needs pytest, which is not installed; run: "
        'pip install "slm-lab[testing]"'
    ) from error

from slm_lab.testing.algorithm import AlgorithmContract
from slm_lab.testing.algorithm_case import AlgorithmCase
from slm_lab.testing.environment import EnvironmentCase, EnvironmentContract
from slm_lab.testing.memory import MemoryCase, MemoryContract
from slm_lab.testing.mode import ModeCase, ModeContract
from slm_lab.testing.net import NetCase, NetContract

__all__ = [
    "AlgorithmCase",
    "AlgorithmContract",
    "EnvironmentCase",
    "EnvironmentContract",
    "MemoryCase",
    "MemoryContract",
    "ModeCase",
    "ModeContract",
    "NetCase",
    "NetContract",
]
