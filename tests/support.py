"""Helpers of many tests: small specs, and Sessions run in this process."""

import copy
import fcntl
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from slm_lab.parallel.actor_learner.strategy import LearnerStrategy, serial_source
from slm_lab.parallel.all_reduce.launch import MakeStrategy
from slm_lab.parallel.all_reduce.shared_memory_group import (
    GroupBuffers,
    SharedMemoryGroup,
)
from slm_lab.parallel.all_reduce.strategy import AllReduceStrategy
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.hogwild.launch import global_state
from slm_lab.parallel.hogwild.strategy import HogwildMode, HogwildStrategy
from slm_lab.parallel.task import SessionTask
from slm_lab.session.seeding import session_seeds
from slm_lab.session.session import Session
from slm_lab.session.status_board import StatusBoard
from slm_lab.session.strategy import Strategy
from slm_lab.spec.load import parse_spec
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.run_dir import RunDir
from tests.faults.lab import TIMING_COLUMNS

PPO = {
    "agent": {
        "name": "PPO",
        "algorithm": {
            "name": "PPO",
            "gamma": 0.99,
            "lam": 0.95,
            "clip_eps_spec": {
                "name": "no_decay",
                "start_val": 0.2,
                "end_val": 0.2,
                "start_step": 0,
                "end_step": 0,
            },
            "entropy_coef_spec": {
                "name": "linear_decay",
                "start_val": 0.01,
                "end_val": 0.0,
                "start_step": 0,
                "end_step": 2000,
            },
            "val_loss_coef": 0.5,
            "time_horizon": 16,
            "minibatch_size": 32,
            "training_epoch": 2,
        },
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": {
            "type": "MLPNet",
            "shared": False,
            "hid_layers": [16],
            "hid_layers_activation": "tanh",
            "init_fn": "orthogonal_",
            "clip_grad_val": 0.5,
            "loss_spec": {"name": "MSELoss"},
            "optim_spec": {"name": "GlobalAdam", "lr": 1e-3},
            "gpu": False,
        },
    },
    "env": {"name": "CartPole-v1", "num_envs": 4, "max_frame": 1000},
    "meta": {"log_frequency": 100, "random_seed": 0, "save_interval": 0},
}


def ppo(**changes: Any) -> dict[str, Any]:
    """A small PPO spec; keywords are dotted paths with __ for dots."""
    return _changed(copy.deepcopy(PPO), changes)


def _changed(spec: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for path, value in changes.items():
        *parents, last = path.split("__")
        block: dict[str, Any] = spec
        for parent in parents:
            block = block[parent]
        block[last] = value
    return spec


ENTROPY = {
    "name": "linear_decay",
    "start_val": 0.01,
    "end_val": 0.0,
    "start_step": 0,
    "end_step": 2000,
}


def reinforce(**changes: Any) -> dict[str, Any]:
    """A small Reinforce spec on whole episodes."""
    algorithm = {
        "name": "Reinforce",
        "gamma": 0.99,
        "center_return": True,
        "training_frequency": 2,
        "entropy_coef_spec": ENTROPY,
    }
    spec = ppo(agent__algorithm=algorithm, agent__memory={"name": "OnPolicyReplay"})
    return _changed(spec, changes)


def actor_critic(**changes: Any) -> dict[str, Any]:
    """A small A2C spec."""
    algorithm = {
        "name": "ActorCritic",
        "gamma": 0.99,
        "lam": 0.95,
        "training_frequency": 8,
        "val_loss_coef": 0.5,
        "entropy_coef_spec": ENTROPY,
    }
    return _changed(ppo(agent__algorithm=algorithm), changes)


EXPLORE = {
    "name": "linear_decay",
    "start_val": 1.0,
    "end_val": 0.1,
    "start_step": 0,
    "end_step": 500,
}


def sarsa(**changes: Any) -> dict[str, Any]:
    """A small SARSA spec, ε-greedy."""
    algorithm = {
        "name": "SARSA",
        "gamma": 0.99,
        "training_frequency": 8,
        "action_policy": "epsilon_greedy",
        "explore_var_spec": EXPLORE,
    }
    return _changed(ppo(agent__algorithm=algorithm), changes)


def q_learning(name: str, **changes: Any) -> dict[str, Any]:
    """A small spec of the algorithm `name` of the DQN family, ε-greedy, with uniform
    replay."""
    algorithm = {
        "name": name,
        "gamma": 0.99,
        "training_frequency": 16,
        "training_start_step": 32,
        "training_batch_iter": 2,
        "action_policy": "epsilon_greedy",
        "explore_var_spec": EXPLORE,
    }
    memory = {"name": "Replay", "batch_size": 16, "max_size": 200}
    spec = ppo(agent__algorithm=algorithm, agent__memory=memory)
    return _changed(spec, {"agent__net__update_frequency": 64, **changes})


def soft(name: str, **changes: Any) -> dict[str, Any]:
    """A small spec of `name`, an actor with critics, with uniform replay."""
    algorithm = {
        "name": name,
        "gamma": 0.99,
        "training_frequency": 16,
        "training_start_step": 32,
        "training_batch_iter": 2,
    }
    targets = {"agent__net__update_type": "polyak", "agent__net__polyak_coef": 0.05}
    memory = {"name": "Replay", "batch_size": 16, "max_size": 200}
    spec = ppo(agent__algorithm=algorithm, agent__memory=memory)
    return _changed(spec, {**(targets if name != "CrossQ" else {}), **changes})


class Rank(NamedTuple):
    """One of the workers that train together in this process, a thread each."""

    index: int
    board: StatusBoard
    place: GroupBuffers
    kind: MakeStrategy = AllReduceStrategy


def parse(data: dict[str, Any], name: str = "small") -> Spec:
    return parse_spec(name, data)


def make_session(
    spec: Spec,
    folder: Path,
    *,
    seed: int = 0,
    resume: bool = False,
    on_row: Callable[[Session], None] | None = None,
    hogwild: HogwildMode | None = None,
    rank: Rank | None = None,
    serially: bool = False,
) -> Session:
    """A Session that writes to `folder`, ready to run here.

    With `hogwild` it is the only Hogwild! worker. With `serially` its actors alternate
    with it.
    """
    run_dir = RunDir(folder, spec.name)
    for part in ("info", "model", "log", "graph"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    index, board = 0, StatusBoard.allocate(CONTEXT, 1)
    strategy: Strategy | None = None
    one = SessionTask(spec, run_dir, seed, 0, 0, 1, resume, workers=range(1))
    if hogwild is not None:
        strategy = HogwildStrategy(global_state(hogwild, one), board, 0)
    if rank is not None:
        index, board, place, kind = rank
        group = SharedMemoryGroup(place, index, seconds=60)
        strategy = kind(board, group)
    if serially:
        spec = spec.as_learned()
        strategy = LearnerStrategy(spec, partial(serial_source, one), board, 0)
    return Session(
        spec,
        index,
        session_seeds(seed, 0, index),
        run_dir.session(0, index),
        board,
        resume=resume,
        on_row=on_row,
        strategy=strategy,
    )


def run_session(spec: Spec, folder: Path, **options: Any) -> Session:
    """Runs a Session to its end and closes it."""
    session = make_session(spec, folder, **options)
    try:
        session.run()
    finally:
        session.close()
    return session


def rows(session: Session) -> pd.DataFrame:
    """Its rows, less the columns that depend on the machine's speed."""
    return read_rows(session.paths.rows)


def read_rows(path: Path) -> pd.DataFrame:
    return pd.read_csv(path).drop(columns=list(TIMING_COLUMNS), errors="ignore")


def run_ranks(
    spec: Spec,
    folder: Path,
    count: int,
    kind: MakeStrategy = AllReduceStrategy,
    **options: Any,
) -> list[Session]:
    """Runs `count` ranks of one training to their end in threads; all raise what one
    raises."""
    board, place = StatusBoard.allocate(CONTEXT, count), GroupBuffers.of(count)

    def run(index: int) -> Session:
        return run_session(
            spec, folder, rank=Rank(index, board, place, kind), **options
        )

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


def made_once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """The folder that `make` has filled, once for all worker processes of pytest.

    Another process that asks for it waits until it is complete.
    """
    base = factory.getbasetemp()
    folder = (
        base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    ) / f"once_{name}"
    complete = folder.with_suffix(".complete")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)  # what a failure left
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder
