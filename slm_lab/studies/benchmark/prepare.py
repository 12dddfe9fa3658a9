"""Prepares a benchmark: the rows of a suite with their specs, as the user asks for
them."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from slm_lab.core.errors import UsageError
from slm_lab.core.plugins import import_plugins
from slm_lab.recipes.recipe import is_algorithm
from slm_lab.records.run_source import RunSource
from slm_lab.spec.load import warnings_held
from slm_lab.studies.benchmark.plan import BenchmarkPlan, PlannedRow
from slm_lab.studies.benchmark.run import BenchmarkRun
from slm_lab.studies.benchmark.suite import SuiteRow, read_suite, shipped_suites
from slm_lab.studies.one_training import one_training
from slm_lab.studies.resolve import resolve_names


class BenchmarkRequest(NamedTuple):
    """The options of the user's command."""

    suite: str | None
    source: RunSource
    """`sets` are changes of every spec; `data_dir` is the folder of run folders."""
    data: Path
    """The folder of results."""
    jobs: int | None
    only: tuple[str, ...]
    """Parts of names; rows without any are left out. Empty: all rows."""


def prepare(request: BenchmarkRequest) -> BenchmarkRun:
    """The trainings of a suite that are to be run. Raises SpecError, UsageError."""
    if request.suite is None:
        shipped = ", ".join(shipped_suites())
        raise UsageError(f"name a suite: a YAML file, or one of {shipped}")
    suite = read_suite(request.suite)
    rows = [_planned(request, row) for row in suite.rows if _is_chosen(request, row)]
    if not rows:
        names = ", ".join(row.name for row in suite.rows)
        raise UsageError(
            f"--only {' '.join(request.only)}: no row has it; there are {names}"
        )
    plan = BenchmarkPlan(suite.name, rows, suite.episodes, request.data)
    runs = request.source.data_dir / f"{suite.name}_benchmark"
    return BenchmarkRun(plan, runs, request.jobs)


def _is_chosen(request: BenchmarkRequest, row: SuiteRow) -> bool:
    name = row.name.lower()
    return not request.only or any(part.lower() in name for part in request.only)


def _planned(request: BenchmarkRequest, row: SuiteRow) -> PlannedRow:
    """The row with its spec: its words may name a recipe, a template or a file. Imports
    the modules of the spec. It is one training, even where the spec repeats it. Raises
    SpecError, and UsageError for a recipe without an environment."""
    sets = (*row.sets, *request.source.sets)
    name = row.spec_name
    is_recipe = is_algorithm(row.file)
    if is_recipe and name is None and row.env is None:
        raise UsageError(
            f"{request.suite}: runs: {row.file} is an algorithm: name its "
            f"environments, as {{specs: [{row.file}], envs: [CartPole-v1]}}"
        )
    if is_recipe and row.env is not None:
        name = row.env
    elif row.env is not None:
        sets = (f"env.name={row.env}", *sets)
    source = replace(
        request.source, spec_file=row.file, spec_name=name, sets=sets, seed=None
    )
    source = resolve_names(source)
    import_plugins(source.imports)
    with warnings_held():
        source, spec = one_training(source)
    return PlannedRow(
        name=row.name,
        method=row.method or spec.agent.algorithm.name,
        source=source,
        spec=spec,
        seeds=row.seeds,
        bound=row.bound,
    )
