"""The base of all contracts: a class of tests that runs once for each of its cases."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from _pytest.mark.structures import ParameterSet  # pytest exports no name for it


class Contract:
    """A suite of tests over `cases`. A subclass names its cases, and pytest runs every
    test for each of them. Its name begins with `Test`."""

    cases: ClassVar[Mapping[str, Any]] = {}
    """The cases by name."""

    def cases_of(self, test: str) -> list[ParameterSet]:
        """The cases of the test of this name; by default all. Override it to run a
        costly test on fewer cases, or to mark it."""
        return [pytest.param(case, id=name) for name, case in self.cases.items()]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Called by pytest: gives a test its cases."""
        assert self.cases, f"{type(self).__name__}.cases is empty: name a case"
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", self.cases_of(metafunc.function.__name__))
