"""Trains an agent for a moment in every environment of envpool, which takes an hour on
two cores, and writes which of them cannot be trained in, with the reasons.

python -m bench.envpool_ids docs/envpool_ids.json [PART_OF_AN_ID…]

Each id is tried as `slm-lab run ppo envpool:ID dev` does it: the recipe for its spaces,
the checks, a training event, an evaluation, a checkpoint. But there are two
environments, short rollouts, no graphs, and many ids in one process. A process that an
environment ends is followed by another one."""

import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import envpool
import torch

from slm_lab.core.errors import LabError
from slm_lab.core.plugins import ENVPOOL
from slm_lab.recipes.recipe import choose_recipe, plain_env
from slm_lab.spec.budget import dev_profile
from slm_lab.spec.load import load_spec
from slm_lab.spec.schema.spec import Spec
from slm_lab.studies.requirements import check_spaces
from slm_lab.testing.sessions import run_session

SMALL = (
    "env.num_envs=2",
    "env.max_frame=64",
    "agent.algorithm.time_horizon=16",
    "agent.algorithm.minibatch_size=16",
    "agent.algorithm.training_epoch=1",
    "agent.net.gpu=false",
    "meta.eval_frequency=1000000",
    "meta.log_frequency=32",
)
"""Keys by which a training takes a moment."""

SECONDS = 120.0
"""How long one id may take."""


def main(path: Path, parts: Sequence[str]) -> None:
    """Tries the ids that contain one of `parts`, by default all, and writes `path`."""
    ids = [
        env_id
        for env_id in envpool.list_all_envs()
        if not parts or any(part in env_id for part in parts)
    ]
    reasons: dict[str, str] = {}
    todo = list(ids)
    while todo:
        done = try_in_a_process(todo, reasons)
        todo = todo[done:]
    packages = f"{Path(envpool.__file__).parents[1]}/"
    by_reason: dict[str, list[str]] = {}
    for env_id, reason in reasons.items():
        general = reason.replace(env_id, "ID").replace(packages, "")
        by_reason.setdefault(general, []).append(env_id)
    summary = {
        "envpool": envpool.__version__,
        "tried": len(ids),
        "trained": len(ids) - len(reasons),
        "not": by_reason,
    }
    path.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(f"{summary['trained']} of {summary['tried']} were trained in")


def try_in_a_process(ids: Sequence[str], reasons: dict[str, str]) -> int:
    """Tries `ids` until their process ends, and adds to `reasons`; returns how many
    were tried."""
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=try_all, args=(ids, there))
    process.start()
    there.close()
    done = 0
    reason: str | None = None
    while done < len(ids):
        try:
            reason = "it took too long"
            if here.poll(SECONDS):
                reason = here.recv()
        except EOFError:
            process.join()
            code = process.exitcode or 0
            reason = f"it ended the process with the exit code {code}"
            if code < 0:
                reason = f"it ended the process with {signal.Signals(-code).name}"
        if reason is not None:
            reasons[ids[done]] = reason
        done += 1
        if reason is not None and reason.startswith("it "):
            break
    process.kill()
    process.join()
    return done


def try_all(ids: Sequence[str], results: Connection) -> None:
    """Sends the reason why no agent can be trained in each of `ids`, or None."""
    torch.set_num_threads(1)
    os.chdir(tempfile.gettempdir())  # ViZDoom writes a file
    warnings.simplefilter("ignore")
    for env_id in ids:
        began = time.monotonic()
        reason = None
        try:
            train_briefly(f"{ENVPOOL}{env_id}")
        except LabError as error:
            reason = " ".join(str(error).split()).replace(ENVPOOL, "")
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        seconds = time.monotonic() - began
        print(f"{seconds:6.1f} s {env_id} {reason or ''}", file=sys.stderr, flush=True)
        results.send(reason)


def train_briefly(name: str) -> None:
    """Trains PPO by its recipe in the environment `name`. Raises LabError."""
    with tempfile.TemporaryDirectory() as folder:
        run_session(small_spec(name), Path(folder))


def small_spec(name: str) -> Spec:
    """The spec of a training that takes a moment. Raises LabError."""
    recipe = choose_recipe("ppo", plain_env(name, ()))
    spec = load_spec(recipe.file, recipe.name, recipe.with_sets(SMALL), warn=False)
    spec = dev_profile(spec)
    check_spaces(name, spec)
    return spec


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
