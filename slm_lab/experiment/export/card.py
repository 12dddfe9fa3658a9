"""The page that describes a shared agent, in Markdown."""

import json
import shlex
from pathlib import Path

import numpy as np

from slm_lab.analysis.figure.axis import RETURNS
from slm_lab.analysis.statistics import bootstrap_interval
from slm_lab.core.text import significant
from slm_lab.experiment.plot.runs import read_trial, trial_of
from slm_lab.experiment.saved_run import SavedAgent, SavedRun
from slm_lab.experiment.trust import command_text, named_by
from slm_lab.storage.run_dir import RunDir, origin_of


def card(run: SavedRun, saved: SavedAgent, folder: Path, file: str, repo: str | None) -> str:
    """The page of the run in `folder`, which is shared as `file`, on the Hub as `repo`."""
    spec, origin = run.spec, origin_of(run.run_dir.spec_file)
    name, algorithm, env = spec.name, spec.agent.algorithm.name, spec.env.name
    modules = named_by(folder.glob("*_spec.json"))
    imports = f", imports={json.dumps(modules)}" if modules else ""
    target = json.dumps(file, ensure_ascii=False)
    program = f"import slm_lab; print(slm_lab.load({target}{imports}).evaluate(10))"
    enjoy = command_text(["run", f"enjoy@{file}", "--render"], modules)
    again = command_text(["run", RunDir(folder, name).spec_file.name, name, "train"], modules)
    graphs = [f"![Returns]({each.relative_to(folder)})\n\n" for each in folder.rglob("*.png")]
    versions = [f"{package} {version}" for package, version in origin.get("packages", {}).items()]
    trial = read_trial(trial_of(run.run_dir, run.trial), "frames", RETURNS[0])
    finals = np.array([each.final_return for each in trial.trainings])
    returns = ", ".join(map(significant, finals)) or "none was measured"
    if len(finals) > 1:
        draws = np.random.default_rng(0)
        ends = bootstrap_interval(finals, lambda x: x.mean(0), draws)
        low, high = (significant(float(end)) for end in ends)
        returns += f". Mean {significant(finals.mean())}, 95 % bootstrap interval {low} to {high}"
    return f"""---
library_name: slm-lab
tags: {json.dumps(["reinforcement-learning", algorithm, env])}
---
# {name}: {algorithm} on {env}

An agent of [SLM Lab](https://github.com/kengz/SLM-Lab): Session {saved.session}, saved at frame
{saved.frame:,} of {spec.env.max_frame:,}.

## Use it

```bash
{"" if repo is None else f"slm-lab pull {repo}{chr(10)}"}{enjoy}
python -c {shlex.quote(program)}
```

## How it was trained

The archive holds the whole spec, the rows of the training and its graph.
`{again}` repeats it, with the root seed {run.root_seed}.
Commit {origin.get("git_sha")}; Python {origin.get("python")}, {", ".join(versions)}.

## Returns

{"".join(graphs)}Mean returns of the last 5 % of the training, by seed: {returns}.
"""
