"""The page that describes a shared agent, in Markdown."""

import json
from pathlib import Path

import numpy as np

from slm_lab.analysis.statistics import bootstrap_interval
from slm_lab.core.text import significant
from slm_lab.experiment.saved_run import SavedAgent, SavedRun
from slm_lab.experiment.trust import modules_of, recorded_imports
from slm_lab.storage.run_dir import origin_of


def card(run: SavedRun, saved: SavedAgent, folder: Path, file: str) -> str:
    """The page of the run in `folder`, which is shared as `file`."""
    spec, origin = run.spec, origin_of(run.run_dir.spec_file)
    algorithm, env = spec.agent.algorithm.name, spec.env.name
    tags = ["reinforcement-learning", algorithm, env]
    modules = (*recorded_imports(run.run_dir.spec_file, {"_run": origin}), *modules_of(spec))
    imports = "".join(f" --import {module}" for module in dict.fromkeys(modules))
    versions = [f"{name} {version}" for name, version in origin.get("packages", {}).items()]
    metrics = sorted(folder.glob("info/*_session_metrics_scalar_train.json"))
    returns = [json.loads(each.read_text())["final_return"] for each in metrics]
    rows = [f"| {number} | {significant(value)} |" for number, value in enumerate(returns)]
    known = np.array([value for value in returns if value is not None])
    summary = "No Session has ended."
    if known.size:
        low, high = bootstrap_interval(known, lambda x: x.mean(0), np.random.default_rng(0))
        ends = f"{significant(float(low))} to {significant(float(high))}"
        summary = f"Mean {significant(known.mean())}, 95 % bootstrap interval {ends}."
    name = spec.name
    return f"""---
library_name: slm-lab
tags: {json.dumps(tags)}
---
# {name}: {algorithm} on {env}

An agent of [SLM Lab](https://github.com/kengz/SLM-Lab): Session {saved.session}, saved at frame \
{saved.frame:,} of {spec.env.max_frame:,}.

## Use it

```bash
slm-lab run enjoy@{file} --render{imports}
python -c "import slm_lab; print(slm_lab.load('{file}').evaluate(10))"
```

## How it was trained

The archive holds the whole spec, the rows of the training and its graph.
`slm-lab run {name}_spec.json {name} train` repeats it, with the root seed {run.root_seed}.

- commit {origin.get("git_sha")}, Python {origin.get("python")}
- {", ".join(versions)}

## Returns

The mean return of the last 5 % of the training, by Session:

| Session | final return |
|---|---|
{chr(10).join(rows)}

{summary} The seeds of the Sessions derive from the root seed.
"""
