"""From a request on the command line to a trained Trial in its run folder."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from slm_lab.analysis.atomic import write_atomically
from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.env.check import check_env
from slm_lab.experiment.progress import Board
from slm_lab.experiment.provenance import provenance
from slm_lab.experiment.result import TrialResult
from slm_lab.experiment.run_dir import RunDir
from slm_lab.experiment.seeding import draw_root_seed
from slm_lab.experiment.trial import Trial
from slm_lab.spec.load import load_spec
from slm_lab.spec.profile import dev_profile
from slm_lab.spec.schema.spec import Spec

MODES = ("dev", "train", "train@latest", "train@FOLDER")

RUN_BLOCK = "_run"
"""The key beside the spec, in the run folder's spec file, that says how the run came about."""

MAY_CHANGE = ("meta.save_interval", "meta.stop_return", "meta.max_restart", "search", "agent.name")
"""What may differ between a run and the spec that resumes it: nothing that a number depends on."""


@dataclass(frozen=True)
class RunRequest:
    """What the user asked for."""

    spec_file: str
    spec_name: str | None
    mode: str
    sets: tuple[str, ...] = ()
    seed: int | None = None
    data_dir: Path = Path("data")
    imports: tuple[str, ...] = ()


class Run:
    """A request made ready: its spec checked, its folder made or found. `start` trains."""

    def __init__(self, request: RunRequest) -> None:
        """Raises SpecError or UsageError with every problem before any process starts."""
        resume_from = parse_mode(request.mode)
        overrides = {} if request.seed is None else {"meta.random_seed": request.seed}
        spec = load_spec(request.spec_file, request.spec_name, request.sets, overrides)
        if request.mode == "dev":
            spec = dev_profile(spec)
        problems = check_env(spec.env)
        if problems:
            raise SpecError(f"{request.spec_file}: {spec.name}", problems)
        self.imports = request.imports
        self.checked = request.mode == "dev"
        self.resume = resume_from is not None
        if resume_from is None:
            given = spec.meta.random_seed
            self.root_seed = draw_root_seed() if given is None else given
            self.spec = with_seed(spec, self.root_seed)
            self.run_dir = RunDir.create(request.data_dir, spec.name, datetime.now())
            self._write_specs(request)
        else:
            self.run_dir = find_run(resume_from, request.data_dir, spec.name)
            self.spec, self.root_seed = self._saved_spec(spec, request)

    def start(self, on_tick: Callable[[Board], None]) -> TrialResult:
        """Trains to the end of the budget."""
        trial = Trial(
            self.spec,
            self.run_dir,
            self.root_seed,
            resume=self.resume,
            checked=self.checked,
            imports=self.imports,
            on_tick=on_tick,
        )
        return trial.run()

    def _write_specs(self, request: RunRequest) -> None:
        about = {
            **provenance(self.root_seed),
            "spec_file": request.spec_file,
            "set": list(request.sets),
            "mode": request.mode,
            "imports": list(request.imports),
        }
        resolved = self.spec.to_json()
        content = {self.spec.name: resolved, RUN_BLOCK: about}
        _write_json(self.run_dir.spec_file, content)
        _write_json(self.run_dir.trial_spec_file(0), {self.spec.name: resolved})

    def _saved_spec(self, spec: Spec, request: RunRequest) -> tuple[Spec, int]:
        """The spec the run was started with; the file may differ only where no number depends."""
        saved = load_spec(self.run_dir.spec_file, self.run_dir.spec_name)
        seed = saved.meta.random_seed
        assert seed is not None, "a run's own spec file always holds its seed"
        given = spec if request.seed is not None else with_seed(spec, spec.meta.random_seed or seed)
        problems = [
            Problem(
                path,
                f"the run was started with {json.dumps(old)}; start a new run to change it",
                new,
                True,
            )
            for path, old, new in differences(saved.to_json(), given.to_json())
            if not path.startswith(MAY_CHANGE)
        ]
        if problems:
            where = f"{request.spec_file}: {spec.name} cannot resume {self.run_dir.root}: it"
            raise SpecError(where, problems)
        return given, seed


def parse_mode(mode: str) -> str | None:
    """None for a fresh run, else what to resume: "latest" or a folder. Raises UsageError."""
    if mode in ("dev", "train"):
        return None
    name, at, target = mode.partition("@")
    if name == "train" and at and target:
        return target
    known = ", ".join(MODES)
    if name in ("search", "eval", "enjoy"):
        raise UsageError(f"the mode {name} is not available yet; there are {known}")
    raise UsageError(f'there is no mode "{mode}"; there are {known}')


def find_run(target: str, data_dir: Path, spec_name: str) -> RunDir:
    """The run folder that "latest" or a path stands for."""
    if target == "latest":
        return RunDir.latest(data_dir, spec_name)
    return RunDir.open(Path(target), spec_name)


def with_seed(spec: Spec, seed: int) -> Spec:
    """The spec with its root seed written down."""
    return spec.model_copy(update={"meta": spec.meta.model_copy(update={"random_seed": seed})})


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], path: Sequence[str] = ()
) -> list[tuple[str, Any, Any]]:
    """Dotted path, old and new value of every leaf in which two nested specs differ."""
    found = []
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        here = [*path, str(key)]
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, here)
        elif before != after:
            found.append((".".join(here), before, after))
    return found


def _write_json(path: Path, content: object) -> None:
    write_atomically(path, json.dumps(content, indent=2).encode() + b"\n")
