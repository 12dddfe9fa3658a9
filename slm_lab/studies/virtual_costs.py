"""The costs of a simulation: what the work of one worker takes here. They are measured
when a run in virtual time begins."""

from datetime import datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from slm_lab.core.errors import LabError
from slm_lab.parallel.all_reduce.process_groups import exchange_seconds
from slm_lab.parallel.virtual.costs import Costs, block_of, levels, read_costs
from slm_lab.records.run_source import RunSource
from slm_lab.session.pace import EXCHANGE, EXCHANGED_FLOAT
from slm_lab.spec.scale import scaled
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.probe import probing_keys, train_for
from slm_lab.studies.trial import TrialTask

SECONDS = 6.0
"""How long a worker is measured, once it learns."""
RANKS = 2
SHORT = 16
LONG = 100_000
REPEATS = 200
"""The exchanges that are measured: ranks, numbers of each, and how often."""


def with_costs(spec: Spec, source: RunSource) -> Spec:
    """The spec with the costs of its simulation, measured by a worker that trains alone
    if the spec has none. Raises LabError if that fails, KeyboardInterrupt if the user
    stops it."""
    settings = spec.meta.simulate
    if settings is None or settings.costs is not None:
        return spec
    alone = one_of_many(source.load(_keys(spec), warn=False))
    with TemporaryDirectory(prefix="slm_lab_costs_") as folder:
        costs = _measured(alone, Path(folder), source.imports)
    if costs and spec.meta.mode.has_ranks:
        costs = {**costs, **_exchange_costs()}
    if not costs:
        raise LabError(
            "meta.simulate: no cost could be measured, because nothing was learned "
            f"within {SECONDS:g} s; set meta.simulate.costs"
        )
    known = settings.model_copy(update={"costs": block_of(costs)})
    meta = spec.meta.model_copy(update={"simulate": known})
    return spec.model_copy(update={"meta": meta})


def _keys(spec: Spec) -> dict[str, Any]:
    """Keys for an endless training in real time."""
    return {**probing_keys(spec), "meta.simulate": {"costs": None}}


def one_of_many(spec: Spec) -> Spec:
    """A training of one worker that does what each of many workers does. It has a
    worker's share of the rollout, of the minibatch and of the memory."""
    share = scaled(spec)
    alone = share.meta.model_copy(update={"max_session": 1})
    return share.model_copy(update={"meta": alone})


def _measured(spec: Spec, folder: Path, imports: tuple[str, ...]) -> Costs:
    run_dir = RunDir.create(folder, spec.name, datetime.now())
    train_for(TrialTask(spec, run_dir, root_seed=0, imports=imports), SECONDS)
    costs: dict[str, tuple[float, ...]] = {}
    for session in range(spec.meta.num_sessions):  # an actor, too, beside a learner
        measured = read_costs(run_dir.session(0, session))
        costs |= {kind: tuple(values) for kind, values in measured.items()}
    return costs


def _exchange_costs() -> Costs:
    """The costs of an exchange between ranks, from short and long ones of two."""
    short = exchange_seconds(RANKS, SHORT, REPEATS)
    long = exchange_seconds(RANKS, LONG, REPEATS)
    fixed = levels(short)
    per_float = (median(long) - median(short)) / (RANKS * (LONG - SHORT))
    return {EXCHANGE: tuple(fixed), EXCHANGED_FLOAT: (max(per_float, 0.0),)}
