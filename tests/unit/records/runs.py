"""Run folders that look like those of real runs, for tests that only read them."""

import json
from datetime import UTC, datetime, timedelta

from slm_lab.records.comparison import PLAN_BLOCK, PLAN_FILE
from slm_lab.storage.run_dir import FOLDERS, RUN_BLOCK, RunDir
from tests.support import parse, ppo
from tests.unit.charts.session import write_evaluations, write_session


def write_run(
    data, *specs, name="small", stamp="2026_11_22_030000", rows=20, evaluations=0
):
    """A run folder in `data` with a Trial for each of the specs, one by default.

    Several specs make it the folder of a search.

    Every Session that writes has `rows` rows; no two write the same.
    """
    run_dir = RunDir(data / f"{name}_{stamp}", name)
    for part in FOLDERS:
        (run_dir.root / part).mkdir(parents=True)
    if len(specs) > 1:
        run_dir.event_log_file.touch()
    for trial, raw in enumerate(specs or [ppo()]):
        spec = parse(raw, name)
        saved = {name: spec.to_json()}
        run_dir.spec_file.write_text(json.dumps({**saved, RUN_BLOCK: {}}))
        run_dir.trial_spec_file(trial).write_text(json.dumps(saved))
        for session in spec.meta.writers:
            paths = run_dir.session(trial, session)
            seed = 100 * trial + 10 * session + (spec.meta.random_seed or 0)
            if rows:
                write_session(paths.rows, rows, seed=seed)
            if evaluations:
                write_evaluations(paths.eval_rows, evaluations, spread=seed)
    return run_dir


def write_ended(
    data, spec_name, /, *specs, endings=("finished",), days=0, started=None, **origin
):
    """A run with metrics that say how its Sessions ended."""
    run = write_run(data, *specs, name=spec_name, rows=5)
    content = json.loads(run.spec_file.read_text())
    when = (
        (datetime.now(UTC) - timedelta(days=days)).isoformat()
        if started is None
        else started
    )
    content[RUN_BLOCK] = {"started": when, "mode": "train", "set": [], **origin}
    run.spec_file.write_text(json.dumps(content))
    metrics = {
        "final_return": 12.5,
        "final_return_std": 0.5,
        "num_sessions": len(endings),
        "throughput": {"frames_per_s": 1000.0},
        "sessions": [
            {"session": n, "ending": ending} for n, ending in enumerate(endings)
        ],
    }
    if endings:
        run.trial_metrics_file(0).write_text(json.dumps(metrics))
    return run


TERMS = {
    "compare": {},
    "ab": {"confidence": 0.95, "smallest": None},
    "treat": {
        "run": "/elsewhere/ill",
        "frames": 4000,
        "remedies": [
            {
                "findings": ["it is ill"],
                "settings": ["env.max_t=null"],
                "frame": 1000,
                "since": 2000,
                "until": 6000,
            }
        ],
    },
}
"""What only plans of a kind have, by its word."""


def write_comparison(data, kind, names_kind=True):
    """The folder of a comparison of this kind, in which nothing has trained. It has no
    result file. Plans of earlier versions do not name their kind."""
    folder = data / f"small_{kind.word}_2026_11_22_030000"
    folder.mkdir(parents=True)
    block = {
        "name": "small",
        "variants": [{"spec": "small_0", "mode": "false", "workers": 1}],
        "seeds": [0, 1],
        "started": "2026-11-22T03:00:00+00:00",
    }
    if names_kind:
        block["kind"] = kind.word
    if kind.terms_key:
        block[kind.terms_key] = TERMS[kind.word]
    spec = parse(ppo(env__max_frame=1000), "small_0").to_json()
    plan = {"small_0": spec, PLAN_BLOCK: block}
    (folder / PLAN_FILE.format("small")).write_text(json.dumps(plan))
    return folder


def change_spec(run_dir, change, trial=0):
    """Changes the spec file of a Trial by hand, as JSON data."""
    file = run_dir.trial_spec_file(trial)
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
