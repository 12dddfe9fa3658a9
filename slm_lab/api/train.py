"""Trainings, searches and comparisons from Python."""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, final

from typing_extensions import override

from slm_lab.api.callbacks import positions, resolved
from slm_lab.api.command import Command
from slm_lab.api.run import Run, load_run
from slm_lab.api.started import Started
from slm_lab.core.errors import LabError, SpecError, UsageError
from slm_lab.core.plugins import names_of
from slm_lab.experiment.plot.runs import FoundTrial, find_trials
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.run_dir import RunDir
from slm_lab.storage.run_lookup import asked_spec_name, find_run

if TYPE_CHECKING:
    import pandas as pd

SpecSource: TypeAlias = str | Path | Mapping[str, Any] | Spec
"""A spec file, or the name of a shipped one; a spec as a dict, or a file's content; a Spec."""


@final
class Search(Started):
    """A search over a spec's `search` block, see docs/tutorial/search.md.

    >>> found = slm_lab.search("small.json", sets={"meta.max_trial": 1}, quiet=True)
    >>> found.trials["status"].tolist()
    ['finished']
    """

    def __init__(self, folder: Path, data: Path, command: Command | None) -> None:
        super().__init__(folder, command)
        self._data = data

    @property
    def trials(self) -> "pd.DataFrame":
        """A row per trial, the best first: its values and its metrics."""
        return _csv(self.folder, "*_experiment_df.csv")

    def run(self, trial: int | None = None) -> Run:
        """A trial; by default the best, confirmed if `meta.confirm` is set."""
        target = str(self.folder)
        return load_run(target if trial is None else f"{target}:t{trial}", data=self._data)

    @override
    def __repr__(self) -> str:
        return f"<Search in {self.folder}>"


@final
class Comparison(Started):
    """A comparison of modes of parallel training, see docs/tutorial/compare.md.

    >>> options = {"modes": ["synced"], "workers": [1], "seeds": 1, "quiet": True}
    >>> slm_lab.compare("small.json", **options).table["mode"].tolist()
    ['false', 'synced']
    """

    @property
    def table(self) -> "pd.DataFrame":
        """A row per mode and number of workers: returns, speed-up, time to the threshold."""
        return _csv(self.folder, "*_compare_df.csv")

    @property
    def trainings(self) -> "pd.DataFrame":
        """A row per training."""
        return _csv(self.folder, "*_compare_trainings_df.csv")

    @override
    def __repr__(self) -> str:
        return f"<Comparison in {self.folder}>"


def train(
    spec: SpecSource | None = None,
    *,
    name: str | None = None,
    sets: Mapping[str, Any] | None = None,
    seed: int | None = None,
    data: str | Path = "data",
    imports: Sequence[str] = (),
    trust: bool = False,
    resume: str | Path | Run | None = None,
    wait: bool = True,
    quiet: bool = False,
    on_row: Callable[[Run, dict[str, Any]], object] | None = None,
    on_checkpoint: Callable[[Run, int, int], object] | None = None,
    on_end: Callable[[Run], object] | None = None,
    callbacks: Sequence[Any] = (),
) -> Run:
    """Trains a spec, as `slm-lab run SPEC NAME train`.

    >>> run = slm_lab.train("small.json", sets={"env.max_frame": 500}, seed=0, quiet=True)
    >>> run.rows.frame.max()
    np.float64(500.0)

    Args:
        spec: A spec file, the name of a shipped one, a dict or a Spec. None with `resume`.
        name: The spec in the file; needed if it has several.
        sets: Changes by dotted path, or values of `${variables}`.
        seed: The root seed, in place of `meta.random_seed`.
        data: The folder of run folders.
        imports: Modules that register environments and plug-ins.
        trust: Whether the run to resume may import all modules that it names.
        resume: A run to resume, as for `slm_lab.load`.
        wait: Whether to return at the end of the training. If not, `run.wait()` does, and the
            training saves and stops if this program ends before.
        quiet: Whether to print nothing.
        on_row: `on_row(run, row)`: `row` has the `session` and the columns, None where empty.
        on_checkpoint: `on_checkpoint(run, session, frame)`.
        on_end: `on_end(run)`, also if the training has failed.
        callbacks: Objects with some of these three as methods, or names of installed ones.

    Callbacks run in this process, on what was written. They may call `run.stop()`.

    Raises:
        SpecError, UsageError, MissingExtraError: Nothing was started.
        TrainingFailed: A Session failed; the message has the reasons.
        KeyboardInterrupt: After Ctrl-C, once all Sessions have saved.
    """
    functions = {"on_row": on_row, "on_checkpoint": on_checkpoint, "on_end": on_end}
    own = [SimpleNamespace(**{event: each}) for event, each in functions.items() if each]
    every = resolved([*callbacks, *own])
    resumed = None if resume is None else _found(resume, data, of_search=False)
    before = {} if resumed is None else positions(_trial(resumed.root))
    options = _options(seed, data, imports, trust)
    with _spec_words(spec, name, sets, resumed) as words:
        mode = "train" if resumed is None else f"train@{resumed.root}"
        command = Command(["run", *words[:2], mode, *words[2:], *options], quiet)
        folder = _begun(command)
    run = Run(_trial(folder), Path(data), command, every, before)
    _follow(run, wait)
    return run


def search(
    spec: SpecSource | None = None,
    *,
    name: str | None = None,
    sets: Mapping[str, Any] | None = None,
    seed: int | None = None,
    data: str | Path = "data",
    imports: Sequence[str] = (),
    trust: bool = False,
    resume: str | Path | Search | None = None,
    keep: int | None = None,
    wait: bool = True,
    quiet: bool = False,
) -> Search:
    """Searches over a spec's `search` block, as `slm-lab run SPEC NAME search`.

    `keep` is the number of the best trials whose checkpoints are kept, by default all. Other
    arguments and errors are those of `train`.

    >>> found = slm_lab.search("small.json", sets={"meta.max_trial": 2}, keep=1, quiet=True)
    >>> len(found.trials), found.run().agent()
    (2, <Agent PPO on CartPole-v1, ...>)
    """
    resumed = None if resume is None else _found(resume, data, of_search=True)
    options = [*_options(seed, data, imports, trust), *_given({"--keep": keep})]
    with _spec_words(spec, name, sets, resumed) as words:
        mode = "search" if resumed is None else f"search@{resumed.root}"
        command = Command(["run", *words[:2], mode, *words[2:], *options], quiet)
        found = Search(_begun(command), Path(data), command)
    _follow(found, wait)
    return found


def compare(
    spec: SpecSource | None = None,
    *,
    name: str | None = None,
    modes: Sequence[str] | None = None,
    workers: Sequence[int] | None = None,
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
    """Trains a spec in one process and in modes of parallel training, as `slm-lab compare`.

    Args:
        modes: Values of `meta.distributed`; by default all.
        workers: Numbers of workers or actors; by default 1, 2, 4, … up to the cores.
        seeds: Trainings of each variant; by default 3.
        threshold: A return: report the frames and seconds to reach it.
        resume: The folder of a comparison; then no other argument about the plan is allowed.

    Other arguments and errors are those of `train`.

    >>> options = {"modes": ["all_reduce"], "workers": [1], "seeds": 1, "quiet": True}
    >>> len(slm_lab.compare("small.json", **options).trainings)
    2
    """
    plan = {
        "--modes": None if modes is None else ",".join(modes),
        "--workers": None if workers is None else ",".join(map(str, workers)),
        "--seeds": seeds,
        "--threshold": threshold,
        "--resume": resume.folder if isinstance(resume, Comparison) else resume,
    }
    options = [*_given(plan), *_options(seed, data, imports, trust)]
    with nullcontext(()) if spec is None else _spec_words(spec, name, sets) as words:
        command = Command(["compare", *words, *options], quiet)
        comparison = Comparison(_begun(command), command)
    _follow(comparison, wait)
    return comparison


def _given(options: Mapping[str, object]) -> list[str]:
    return [f"{name}={value}" for name, value in options.items() if value is not None]


def _options(seed: int | None, data: str | Path, imports: Sequence[str], trust: bool) -> list[str]:
    """The options that all commands have."""
    modules = [f"--import={module}" for module in names_of(imports)]
    return [*_given({"--seed": seed, "--data": data}), *modules, *(["--trust"] if trust else [])]


def _found(target: str | Path | Started, data: str | Path, of_search: bool) -> RunDir:
    """The run or search to resume. Raises UsageError if there is none."""
    return find_run(str(getattr(target, "folder", target)), Path(data), None, of_search)


def _trial(folder: Path) -> FoundTrial:
    (trial,) = find_trials(str(folder), folder.parent)
    return trial


@contextmanager
def _spec_words(
    spec: SpecSource | None,
    name: str | None,
    sets: Mapping[str, Any] | None,
    resumed: RunDir | None = None,
) -> Iterator[list[str]]:
    """The words of a command that name a spec and its changes: file, name, and an -s for each.

    A spec that is in no file is written to a temporary one. Raises SpecError, UsageError.
    """
    settings = [
        f"-s{path}={_json(f'sets[{path!r}]', value)}" for path, value in (sets or {}).items()
    ]
    if spec is None and resumed is None:
        raise UsageError("spec is missing: a file, the name of a shipped one, a dict or a Spec")
    if spec is None or isinstance(spec, str | Path):
        file = str(resumed.spec_file if spec is None and resumed is not None else spec)
        yield [file, asked_spec_name(file, name), *settings]
        return
    content = _content(spec, name)
    with tempfile.TemporaryDirectory(prefix="slm_lab_") as folder:
        path = Path(folder) / "spec.json"
        path.write_text(_json("spec", content))
        yield [str(path), asked_spec_name(str(path), name), *settings]


def _content(spec: Mapping[str, Any] | Spec, name: str | None) -> Mapping[str, Any]:
    """The content of a spec file with a spec that is in no file."""
    if isinstance(spec, Spec):
        return {name or spec.name: spec.to_json()}
    return {name or "spec": spec} if "agent" in spec else spec


def _json(what: str, value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what} cannot be written as JSON: {error}") from None


def _begun(command: Command) -> Path:
    """The folder of a command, once it has one. Raises its error."""
    try:
        return command.folder()
    except SpecError as error:
        raise _explained(error) from None


def _explained(error: SpecError) -> LabError:
    """A clearer error, if an environment or wrapper is known in this process alone."""
    move = 'move it to a module, such as my_envs.py, and pass imports=["my_envs"]'
    for problem in error.problems:
        if str(problem.value).startswith("__main__:"):
            return UsageError(f"{problem.value}: training processes do not import it: {move}")
    registry = getattr(sys.modules.get("gymnasium"), "registry", {})
    unknown = [problem.value for problem in error.problems if problem.path == "env.name"]
    for name in unknown:
        if name in registry:
            maker = registry[name].entry_point
            module = maker.partition(":")[0] if isinstance(maker, str) else maker.__module__
            fix = f'pass imports=["{module}"], which registers it'
            if module == "__main__":
                fix = move
            return UsageError(f"{name} is registered in this process, not in training ones: {fix}")
    return error


def _follow(started: Started, wait: bool) -> None:
    if wait:
        started.wait()
    else:
        started.watch_in_background()


def _csv(folder: Path, pattern: str) -> "pd.DataFrame":
    """The table of a file in `folder`. Raises UsageError if it is not written yet."""
    import pandas as pd

    for file in folder.glob(pattern):
        return pd.read_csv(file)
    raise UsageError(f"{folder} has no {pattern} yet")
