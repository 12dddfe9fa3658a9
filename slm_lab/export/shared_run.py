"""A run as one file to share: spec, agent, rows, metrics, graph and a card."""

import io
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import numpy as np

from slm_lab.charts.axis import RETURNS
from slm_lab.charts.statistics import bootstrap_interval
from slm_lab.charts.trainings import read_trial
from slm_lab.core.files import read_file, write_atomically, write_json
from slm_lab.core.registry import ALGORITHMS, ENVS, MEMORIES, NETS
from slm_lab.core.text import significant
from slm_lab.records.annotations import read_annotations
from slm_lab.records.archive import naming
from slm_lab.records.checkpoints import AgentCheckpoint
from slm_lab.records.playable_run import PlayableRun
from slm_lab.records.trust import command_text, named_by
from slm_lab.spec.modes import MODES
from slm_lab.spec.schema.net import ROLES
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.checkpoint import CheckpointStore
from slm_lab.storage.run_dir import RUN_BLOCK, RunDir

SHARED = (
    "format",
    "started",
    "random_seed",
    "git_sha",
    "packages",
    "python",
    "set",
    "imports",
)
"""The keys of the run's origin that are kept: none about the machine or its folders."""


def shared_files(
    run: PlayableRun, saved: AgentCheckpoint, file: str, repo: str | None = None
) -> dict[str, bytes]:
    """The files of a run folder with one agent. A card names the archive `file` and the
    `repo` on the Hub. A trial of a search becomes a single run."""
    with naming(run.record.place, run.record.folder), TemporaryDirectory() as parent:
        folder = Path(parent)
        _fill(folder, run, saved)
        write_atomically(
            folder / "README.md",
            card(run=run, saved=saved, folder=folder, file=file, repo=repo).encode(),
        )
        files = sorted(folder.rglob("*.*"))
        return {file.relative_to(folder).as_posix(): read_file(file) for file in files}


def zipped(files: Mapping[str, bytes]) -> bytes:
    """The archive with these files, which `records.archive` reads."""
    content = io.BytesIO()
    with ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def _fill(folder: Path, run: PlayableRun, saved: AgentCheckpoint) -> None:
    source = run.record.run_dir
    shared = RunDir(folder, run.spec.name)
    name = run.spec.name
    origin = run.record.origin
    public_origin = {key: origin[key] for key in SHARED if key in origin}
    content = {name: run.record.spec, RUN_BLOCK: public_origin}
    write_json(shared.spec_file, content)
    write_json(shared.trial_spec_file(0), content)
    before = source.trial_prefix(run.record.trial)
    after = shared.trial_prefix(0)
    for file in run.record.result_files:
        target = file.relative_to(source.root).with_name(
            after + file.name.removeprefix(before)
        )
        write_atomically(folder / target, read_file(file))
    annotations = read_annotations(source)
    if any(annotations):
        write_json(shared.annotations_file, annotations._asdict())
    (folder / "model").mkdir()
    store = CheckpointStore(folder / "model", shared.session(0, saved.session).prefix)
    store.save(saved.frame, {}, {"best": saved.snapshot})


def card(
    run: PlayableRun, saved: AgentCheckpoint, folder: Path, file: str, repo: str | None
) -> str:
    """The page of the run in `folder`, which is shared as `file`, on the Hub as
    `repo`."""
    spec = run.spec
    origin = run.record.origin
    name = spec.name
    algorithm = spec.agent.algorithm.name
    env = spec.env.name
    modules = named_by(folder.glob("*_spec.json"))
    imports = ""
    if modules:
        imports = f", imports={json.dumps(modules)}"
    target = json.dumps(file, ensure_ascii=False)
    program = f"import slm_lab; print(slm_lab.load({target}{imports}).evaluate(10))"
    enjoy = command_text(["run", f"enjoy@{file}", "--render"], modules)
    again = command_text(
        ["run", RunDir(folder, name).spec_file.name, name, "train"], modules
    )
    graphs = [
        f"![Returns]({graph.relative_to(folder)})\n\n"
        for graph in folder.rglob("*.png")
    ]
    versions = [
        f"{package} {version}"
        for package, version in origin.get("packages", {}).items()
    ]
    commit = ""
    if origin.get("git_sha"):
        commit = f"Commit {origin['git_sha']}; "
    returns = _returns_text(run)
    packages = _packages(spec)
    needed = ""
    if packages:
        needed = f"It needs {' and '.join(packages)}, which has parts of it.\n\n"
    return f"""---
library_name: slm-lab
tags: {json.dumps(["reinforcement-learning", algorithm, env])}
---
# {name}: {algorithm} on {env}

An agent of SLM Lab, the Python package `slm-lab`: Session {saved.session}, saved
at frame {saved.frame:,} of {spec.env.max_frame:,}.

## Use it

{needed}```bash
{"" if repo is None else f"slm-lab pull {repo}{chr(10)}"}{enjoy}
python -c {shlex.quote(program)}
```

## How it was trained

The archive holds the whole spec, the rows of the training and its graph.
`{again}` repeats it, with the root seed {run.root_seed}.
{commit}Python {origin.get("python")}, {", ".join(versions)}.

## Returns

{"".join(graphs)}Mean returns of the last 5 % of the training, by seed: {returns}.
"""


def _packages(spec: Spec) -> list[str]:
    """The installed packages that offer parts of an agent, without the lab."""
    agent = spec.agent
    offers = [
        ALGORITHMS.package(agent.algorithm.name),
        *(
            NETS.package(net.for_role(role).type)
            for net in agent.nets.values()
            for role in ROLES
        ),
        ENVS.package(spec.env.name),
    ]
    if agent.memory is not None:
        offers.append(MEMORIES.package(agent.memory.name))
    if spec.meta.distributed:
        offers.append(MODES.package(str(spec.meta.distributed)))
    return list(dict.fromkeys(filter(None, offers)))


def _returns_text(run: PlayableRun) -> str:
    """The final return of each seed; of several also their mean, with an interval."""
    trial = read_trial(run.record, "frames", RETURNS[0])
    finals = np.array([training.final_return for training in trial.trainings])
    text = ", ".join(map(significant, finals)) or "none was measured"
    if len(finals) < 2:
        return text
    draws = np.random.default_rng(0)
    ends = bootstrap_interval(finals, lambda x: x.mean(0), draws)
    low, high = (significant(float(end)) for end in ends)
    mean = significant(finals.mean())
    return f"{text}. Mean {mean}, 95 % bootstrap interval {low} to {high}"
