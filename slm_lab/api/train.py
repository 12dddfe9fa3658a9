"""Trainings, searches, comparisons and tests of two specs from Python."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import index
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    SupportsFloat,
    SupportsIndex,
    TypeAlias,
    final,
)

import numpy as np

from slm_lab.api.lab_process import CommandRequest, Handle, LabProcess
from slm_lab.api.run import Run, load_run
from slm_lab.core.errors import LabError, SpecError, UsageError
from slm_lab.core.plugins import listed, listed_texts, refuse_during_import
from slm_lab.records.comparison import ComparisonRecord
from slm_lab.records.lookup import find_run, find_trial
from slm_lab.records.run_record import RunRecord
from slm_lab.records.run_source import RunSource
from slm_lab.spec.schema.spec import Spec
from slm_lab.studies.ab.plan import AbRequest
from slm_lab.studies.compare.modes import CompareRequest
from slm_lab.studies.resolve import find_begun
from slm_lab.studies.run_mode import check_spec_words
from slm_lab.trackers.callbacks import Callbacks

if TYPE_CHECKING:
    import pandas as pd

SpecSource: TypeAlias = str | Path | Mapping[str, Any] | Spec
"""A spec file, the name of a shipped one, a spec or a file's content as a dict, or a
Spec."""
NO_SPEC = "spec: must be a file, the name of a shipped one, a dict or a Spec"


@final
class Search(Handle):
    """A search over a spec's `search` block, see docs/tutorial/search.md.

    >>> found = slm_lab.search("small.json", sets={"meta.max_trial": 1}, quiet=True)
    >>> found.trials["status"].tolist()
    ['finished']"""

    @property
    def trials(self) -> "pd.DataFrame":
        """A row per trial, the best first: its values and its metrics."""
        run_dir = find_run(self.source, self.folder.parent, None, of_search=True)
        return RunRecord(run_dir).trials_table

    def run(self, trial: int | None = None) -> Run:
        """A trial; by default the best, confirmed if `meta.confirm` is set."""
        target = str(self.folder)
        run = load_run(target if trial is None else f"{target}:t{trial}")
        run.is_own = self._process is not None
        return run


@final
class Comparison(Handle):
    """A comparison of modes of parallel training, see docs/tutorial/compare.md.

    >>> options = {"modes": ["synced"], "workers": [1], "seeds": 1, "quiet": True}
    >>> slm_lab.compare("small.json", **options).table["mode"].tolist()
    ['false', 'synced']"""

    @property
    def table(self) -> "pd.DataFrame":
        """A row per mode and number of workers: returns, speed-up, time to the
        threshold."""
        return ComparisonRecord.required(self.folder).table

    @property
    def trainings(self) -> "pd.DataFrame":
        """A row per training."""
        return ComparisonRecord.required(self.folder).trainings_table


@final
class AbTest(Handle):
    """A test of two specs, see docs/tutorial/ab.md.

    >>> slower = {"agent.net.optim_spec.lr": 0.0001}
    >>> test = slm_lab.ab("small.json", sets=slower, seeds=6, quiet=True)
    >>> test.result["allowed"], list(test.pairs)[:4]
    (6, ['seed', 'a', 'b', 'difference'])"""

    @property
    def result(self) -> dict[str, Any]:
        """The answer: `sentence`, `better` ("A", "B" or None), `interval` of the
        difference, `seeds` of each, as `slm-lab ab --json` prints them."""
        return ComparisonRecord.required(self.folder).result

    @property
    def pairs(self) -> "pd.DataFrame":
        """A row per seed: the final returns `a` and `b`, and their `difference`. `low`
        and `high` are the interval after this seed."""
        return ComparisonRecord.required(self.folder).table


def train(
    spec: SpecSource | None = None,
    *,
    name: str | None = None,
    sets: Mapping[str, Any] | None = None,
    seed: int | None = None,
    data: str | Path = "data",
    imports: Sequence[str] = (),
    trust: bool = False,
    label: str | None = None,
    tags: str | Sequence[str] = (),
    track: str | Sequence[str] = (),
    resume: str | Path | Run | bool | None = None,
    schedules: Literal["stretch", "hold"] | None = None,
    init_from: str | Path | Run | None = None,
    init_part: str | Sequence[str] = (),
    which: Literal["best", "latest"] | None = None,
    session: int | None = None,
    wait: bool = True,
    quiet: bool = False,
    on_row: Callable[[Run, dict[str, Any]], object] | None = None,
    on_checkpoint: Callable[[Run, int, int], object] | None = None,
    on_end: Callable[[Run], object] | None = None,
    callbacks: Any = (),
) -> Run:
    """Trains a spec, as `slm-lab run SPEC NAME train`.

    >>> budget = {"env.max_frame": 500}
    >>> run = slm_lab.train("small.json", sets=budget, seed=0, quiet=True)
    >>> float(run.rows.frame.max())
    500.0

    Args:
        spec: A spec file, the name of a shipped one, a dict or a Spec. May be None with
            `resume`.
        name: The spec in the file; needed if it has several.
        sets: Changes by dotted path, or values of `${variables}`.
        seed: The root seed, in place of `meta.random_seed`.
        data: The folder of run folders.
        imports: Modules that register environments and plug-ins.
        trust: Whether the run to resume may import all modules that it names.
        label: A name of the new run, as `--name`; `slm_lab.load` finds the run by it.
        tags: Tags of the new run, as `--tag`.
        track: Trackers that the run is sent to: "wandb", "mlflow", "tensorboard". The
            process that trains has them followed; see `callbacks` for your own.
        resume: A run to resume, as for `slm_lab.load`. A spec beside it only says which
            runs count. True: the run of this `label`, if there is one; else a new run
            begins.
        schedules: What the schedules of a run to resume do with another
            `env.max_frame`. They keep their shares of it ("stretch") or their frames
            ("hold").
        init_from: A run whose weights and normalisers the new run begins with, as
            `--init-from`.
        init_part: What to take of it, such as "net.body"; by default everything.
        which: Its agent, "best" or "latest"; by default the best if there is one.
        session: The Session whose agent it is; by default the first.
        wait: Whether to return at the end of the training. If not, `run.wait()` does,
            and the training saves and stops if this program ends before.
        quiet: Whether to print nothing but warnings and errors.
        on_row: `on_row(run, row)`: `row` has the `session` and the columns, None where
            empty.
        on_checkpoint: `on_checkpoint(run, session, frame)`.
        on_end: `on_end(run)`, also if the training has failed.
        callbacks: An object with some of these three as methods, or its class. Also the
            name of an installed callback or of a tracker, or a list of all these.

    Callbacks run in this process, on what was written. They may call `run.stop()`.

    Raises:
        SpecError, UsageError, MissingExtraError: Nothing was started.
        TrainingFailed: A Session failed; the message has the reasons.
        KeyboardInterrupt: After Ctrl-C, once all Sessions have saved."""
    functions = {"on_row": on_row, "on_checkpoint": on_checkpoint, "on_end": on_end}
    singles = [
        SimpleNamespace(**{event: function})
        for event, function in functions.items()
        if function is not None
    ]
    called = Callbacks([*listed(callbacks), *singles])
    if schedules is not None and resume in (None, False):
        raise UsageError(
            "schedules: only a run that resumes has some to change; pass resume=…"
        )
    source = replace(
        _source(sets, seed=seed, data=data, imports=imports, trust=trust),
        label=_text(label),
        tags=listed_texts(tags),
        track=listed_texts(track),
        schedules=_word("schedules", schedules, ("stretch", "hold")),
        **_parent(init_from, init_part, which, session),
    )
    before = None
    with _complete("train", source, spec, name=name, resume=resume) as asked:
        request = asked
        if asked.resume:
            _, before = find_begun(asked, "train")
        elif asked.run is not None:
            # "latest" may soon be another run
            request, before = find_begun(asked, "train")
        if before is not None:
            called.follow(find_trial(str(before.root), before.root.parent), skip=True)
        process, folder = _start("train", request, quiet)
    trial = find_trial(str(folder), folder.parent)
    if before is None:
        called.follow(trial, skip=False)
    return Run(trial, process, called).followed(wait)


def fork(
    run: str | Path | Run,
    *,
    frame: int | None = None,
    sets: Mapping[str, Any] | None = None,
    data: str | Path = "data",
    imports: Sequence[str] = (),
    trust: bool = False,
    label: str | None = None,
    tags: str | Sequence[str] = (),
    track: str | Sequence[str] = (),
    schedules: Literal["stretch", "hold"] | None = None,
    wait: bool = True,
    quiet: bool = False,
    callbacks: Any = (),
) -> Run:
    """Continues a run's state from a frame in a new run, with other keys, as `slm-lab
    fork RUN --frame FRAME`. Without a change the fork repeats the run.

    >>> run = slm_lab.train("small.json", sets={"env.max_frame": 800}, quiet=True)
    >>> slower = {"agent.net.optim_spec.lr": 1e-4}
    >>> branch = slm_lab.fork(run, frame=400, sets=slower, quiet=True)
    >>> branch.rows.total_reward[:10].equals(run.rows.total_reward[:10])
    True

    `frame` is the frame of the whole training, by default the frame of the newest
    checkpoint. `meta.keep_checkpoints` keeps some to fork from; without one before
    `frame` the run is replayed. Callbacks are called for rows after the fork. Other
    arguments and errors are as in `train`."""
    refuse_during_import("slm_lab.fork")
    called = Callbacks(listed(callbacks))
    source = replace(
        _source(sets, seed=None, data=data, imports=imports, trust=trust),
        fork=os.fspath(run),
        frame=_number("frame", frame, least=0),
        label=_text(label),
        tags=listed_texts(tags),
        track=listed_texts(track),
        schedules=_word("schedules", schedules, ("stretch", "hold")),
    )
    process, folder = _start("train", source, quiet)
    trial = find_trial(str(folder), folder.parent)
    called.follow(trial, skip=True)
    return Run(trial, process, called).followed(wait)


def search(
    spec: SpecSource | None = None,
    *,
    name: str | None = None,
    sets: Mapping[str, Any] | None = None,
    seed: int | None = None,
    data: str | Path = "data",
    imports: Sequence[str] = (),
    trust: bool = False,
    label: str | None = None,
    tags: str | Sequence[str] = (),
    track: str | Sequence[str] = (),
    resume: str | Path | Search | bool | None = None,
    init_from: str | Path | Run | None = None,
    init_part: str | Sequence[str] = (),
    which: Literal["best", "latest"] | None = None,
    session: int | None = None,
    keep: int | None = None,
    wait: bool = True,
    quiet: bool = False,
) -> Search:
    """Searches over a spec's `search` block, as `slm-lab run SPEC NAME search`.

    `keep` is the number of the best trials whose checkpoints are kept, by default all.
    Other arguments and errors are as in `train`.

    >>> trials = {"meta.max_trial": 2}
    >>> found = slm_lab.search("small.json", sets=trials, keep=1, quiet=True)
    >>> len(found.trials), found.run().agent()
    (2, <Agent PPO on CartPole-v1, ...>)"""
    source = replace(
        _source(sets, seed=seed, data=data, imports=imports, trust=trust),
        label=_text(label),
        tags=listed_texts(tags),
        track=listed_texts(track),
        keep=_number("keep", keep, least=1),
        **_parent(init_from, init_part, which, session),
    )
    with _complete("search", source, spec, name=name, resume=resume) as source:
        process, folder = _start("search", source, quiet)
    return Search(folder, process).followed(wait)


def compare(
    spec: SpecSource | None = None,
    *,
    name: str | None = None,
    modes: Sequence[str] | None = None,
    workers: int | Sequence[int] | None = None,
    seeds: int | None = None,
    threshold: float | None = None,
    sets: Mapping[str, Any] | None = None,
    seed: int | None = None,
    data: str | Path = "data",
    imports: Sequence[str] = (),
    trust: bool = False,
    resume: str | Path | Comparison | None = None,
    wait: bool = True,
    quiet: bool = False,
) -> Comparison:
    """Trains a spec in one process and in modes of parallel training, as `slm-lab
    compare`.

    Args:
        modes: Values of `meta.distributed`; by default all.
        workers: Numbers of workers or actors; by default 1, 2, 4, … up to the cores.
        seeds: Trainings of each variant; by default 3.
        threshold: A return: report the frames and seconds to reach it.
        resume: The folder of a comparison; then no other argument about the plan is
            allowed.

    Other arguments and errors are as in `train`.

    >>> options = {"modes": ["all_reduce"], "workers": [1], "seeds": 1, "quiet": True}
    >>> len(slm_lab.compare("small.json", **options).trainings)
    2"""
    source = _source(sets, seed=seed, data=data, imports=imports, trust=trust)
    with _complete("compare", source, spec, name=name, resume=resume) as source:
        request = CompareRequest(
            source=source,
            modes=None if modes is None else listed_texts(modes),
            workers=_worker_counts(workers),
            seeds=_number("seeds", seeds, least=1) or 0,
            threshold=_float("threshold", threshold),
        )
        process, folder = _start("compare", request, quiet)
    return Comparison(folder, process).followed(wait)


def ab(
    a: SpecSource | None = None,
    b: SpecSource | None = None,
    *,
    name: str | None = None,
    name_b: str | None = None,
    sets: Mapping[str, Any] | None = None,
    both: Mapping[str, Any] | None = None,
    smallest: float | None = None,
    seeds: int | None = None,
    confidence: float | None = None,
    jobs: int | None = None,
    seed: int | None = None,
    data: str | Path = "data",
    imports: Sequence[str] = (),
    trust: bool = False,
    resume: str | Path | AbTest | None = None,
    wait: bool = True,
    quiet: bool = False,
) -> AbTest:
    """Trains one more seed of A and of B until it is known which is better, as `slm-lab
    ab`.

    Args:
        a: A spec, as for `train`.
        b: Another one; by default A, which `sets` change.
        name: The spec in the file of A; needed if it has several.
        name_b: The spec in the file of B.
        sets: Changes of B alone.
        both: Changes of A and of B.
        smallest: A difference of returns that does not matter: the test ends once it
            is less.
        seeds: The most seeds of each; by default 20.
        confidence: The chance that the interval is right; by default 0.95.
        jobs: Cores to use; by default all.
        resume: The folder of a test; `seeds` may then allow more, and no other argument
            about the plan is allowed.

    Other arguments and errors are as in `train`.

    >>> changes = {"agent.algorithm.gamma": 0.9}
    >>> test = slm_lab.ab("small.json", sets=changes, seeds=6, quiet=True)
    >>> test.result["allowed"]
    6"""
    source = _source(both, seed=seed, data=data, imports=imports, trust=trust)
    of_b = _source(sets, seed=None, data=data, imports=imports, trust=trust)
    if b is None and name_b is not None and a is not None:
        b = a
    with (
        _complete(verb="ab", source=source, spec=a, name=name, resume=resume) as source,
        _spec_file(b, name_b) as file_b,
    ):
        source_b = replace(
            source,
            spec_file=file_b or source.spec_file,
            spec_name=name_b if file_b else source.spec_name,
            sets=(*source.sets, *of_b.sets),
        )
        request = AbRequest(
            a=source,
            b=source_b,
            seeds=_number("seeds", seeds, least=1),
            smallest=_float("smallest", smallest),
            confidence=_float("confidence", confidence),
            jobs=_number("jobs", jobs, least=1),
        )
        process, folder = _start("ab", request, quiet)
    return AbTest(folder, process).followed(wait)


def _text(value: object) -> str | None:
    """The value of an argument that may be any text."""
    if value is None:
        return None
    return str(value)


def _word(name: str, value: Any, allowed: Sequence[str]) -> Any:
    """The value of an argument. Raises UsageError if it is none of the `allowed`
    ones."""
    if value not in (None, *allowed):
        words = " or ".join(f'"{word}"' for word in allowed)
        raise UsageError(f"{name} = {value!r:.60}: must be {words}")
    return value


def _number(name: str, value: int | None, least: int) -> int | None:
    """The value of an argument. Raises UsageError if it is no whole number, or less
    than `least`."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise UsageError(f"{name} = {value!r}: must be a whole number")
    if index(value) < least:
        raise UsageError(f"{name} = {value}: must be at least {least}")
    return index(value)


def _worker_counts(workers: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """The numbers of workers, in ascending order. Raises UsageError as `_number`."""
    if workers is None:
        return None
    counts = [_number("workers", count, least=1) for count in listed(workers)]
    return tuple(sorted({count for count in counts if count is not None}))


def _float(name: str, value: float | None) -> float | None:
    """The value of an argument. Raises UsageError if it is no number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        raise UsageError(f"{name} = {value!r}: must be a number")
    return float(value)


def _source(
    sets: Mapping[str, Any] | None,
    seed: int | None,
    data: str | Path,
    imports: Sequence[str],
    trust: bool,
) -> RunSource:
    """The options that all functions have."""
    if sets is not None and not isinstance(sets, Mapping):
        raise UsageError(f"sets = {sets!r:.60}: must be a dict from paths to values")
    return RunSource(
        sets=tuple(
            f"{path}={_json(f'sets[{path!r}]', value)}"
            for path, value in (sets or {}).items()
        ),
        seed=_number("seed", seed, least=0),
        data_dir=Path(data),
        imports=listed_texts(imports),
        trust=trust,
    )


def _parent(
    init_from: str | Path | Run | None,
    init_part: str | Sequence[str],
    which: str | None,
    session: int | None,
) -> dict[str, Any]:
    """The options of the saved agent that a run begins with."""
    return {
        "init_from": None if init_from is None else os.fspath(init_from),
        "init_parts": listed_texts(init_part),
        "which": _word("which", which, ("best", "latest")),
        "session": _number("session", session, least=0),
    }


@contextmanager
def _complete(
    verb: str,
    source: RunSource,
    spec: SpecSource | None,
    name: str | None,
    resume: str | Path | Handle | bool | None,
) -> Iterator[RunSource]:
    """The source with its spec file, and the run that it resumes. Raises LabError."""
    refuse_during_import(f"slm_lab.{verb}")
    if resume is True and source.label is None:
        raise UsageError("resume=True resumes the run of a label: pass label=…")
    run = None if isinstance(resume, bool | None) else os.fspath(resume)
    if spec is None and run is None:
        raise UsageError(NO_SPEC)
    if spec is None and name is not None:
        raise UsageError(
            f"name={name!r}: names a spec in a file; a run to resume has one"
        )
    with _spec_file(spec, name) as file:
        check_spec_words(file, name)
        yield replace(
            source,
            spec_file=file or "",
            spec_name=name,
            run=run,
            resume=resume is True,
        )


def _start(verb: str, request: CommandRequest, quiet: bool) -> tuple[LabProcess, Path]:
    """A started command, and its folder. Raises LabError."""
    try:
        process = LabProcess(verb, request, quiet)
        return process, process.folder()
    except SpecError as error:
        raise _explain(error) from None


@contextmanager
def _spec_file(spec: SpecSource | None, name: str | None) -> Iterator[str | None]:
    """The file of a spec; a temporary one if it is in no file. Raises UsageError."""
    if spec is None or isinstance(spec, str | Path):
        yield None if spec is None else str(spec)
        return
    if isinstance(spec, Spec):
        content: Mapping[str, Any] = {name or spec.name: spec.to_json()}
    elif isinstance(spec, Mapping):
        content = spec
        if "agent" in spec:
            content = {name or "spec": spec}
    else:
        raise UsageError(NO_SPEC)
    with TemporaryDirectory(prefix="slm_lab_") as folder:
        path = Path(folder) / "spec.json"
        path.write_text(_json("spec", content))
        try:
            yield str(path)
        except SpecError as error:
            raise SpecError(
                error.where.replace(f"{folder}/", ""), error.problems
            ) from None


def _json(what: str, value: object) -> str:
    try:
        return json.dumps(value, default=_as_plain)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what} cannot be written as JSON: {error}") from None


def _as_plain(value: object) -> object:
    """A NumPy number or array as JSON has it. Raises TypeError for anything else."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"it is a {type(value).__name__}")


def _explain(error: SpecError) -> LabError:
    """A clearer error, if an environment or wrapper is known in this process alone."""
    registry = getattr(sys.modules.get("gymnasium"), "registry", {})
    for problem in error.problems:
        name = str(problem.value)
        is_unknown = "there is no such environment" in problem.message
        if name.startswith("__main__:") or (is_unknown and name in registry):
            maker = getattr(registry.get(name), "entry_point", name)
            module = (
                maker.partition(":")[0] if isinstance(maker, str) else maker.__module__
            )
            fix = f'pass imports=["{module}"], which registers it'
            if module == "__main__":
                fix = (
                    "move it to a module, such as my_envs.py, and pass "
                    'imports=["my_envs"]'
                )
            return UsageError(
                f"{name} is known in this process, not in training ones: {fix}"
            )
    return error
