"""The page that describes a shared agent, in Markdown."""

import json
import shlex
from pathlib import Path

import numpy as np

from slm_lab.analysis.statistics import bootstrap_interval
from slm_lab.core.text import significant
from slm_lab.experiment.saved_run import SavedAgent, SavedRun
from slm_lab.experiment.trust import command_text, named_by
from slm_lab.storage.intact import read_saved_rows
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
    paths = {s: run.run_dir.session(run.trial, s) for s in spec.meta.writers}
    rows = {s: read_saved_rows(each, each.rows) for s, each in paths.items()}
    returns = {s: float(each["final_return"][-1]) for s, each in rows.items() if len(each)}
    shown = [f"| {s} | {significant(None if np.isnan(x) else x)} |" for s, x in returns.items()]
    known = np.array([x for x in returns.values() if not np.isnan(x)] or [np.nan])
    ends = bootstrap_interval(known, lambda x: x.mean(0), np.random.default_rng(0))
    numbers = (None if np.isnan(x) else float(x) for x in (known.mean(), *ends))
    mean, low, high = map(significant, numbers)
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

{"".join(graphs)}The mean return of the last 5 % of the training, by Session. Their seeds derive
from the root seed.

| Session | final return |
|---|---|
{chr(10).join(shown)}

Mean {mean}, 95 % bootstrap interval {low} to {high}.
"""
