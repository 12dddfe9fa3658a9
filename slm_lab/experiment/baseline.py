"""The mean return of the Random agent: the zero point of the `strength` metric.

The lab ships this return for many environments, from `bench.random_returns`. Others are measured
beside the training."""

import fcntl
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, final

import numpy as np

from slm_lab.core.errors import LabError
from slm_lab.core.files import open_own, read_object, write_atomically
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import die_with_parent, ignore_terminal, printing_to, text_log
from slm_lab.parallel.fork_server import end, new_process, start
from slm_lab.parallel.supervisor import TICK
from slm_lab.parallel.wait import wait_until
from slm_lab.session import play_episodes
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.storage.provenance import installed

SHIPPED = Path(__file__).with_name("shipped_returns.json")
LEARNER_ONLY = frozenset({"life_loss_info"})
"""Arguments that do not change the returns of whole games."""
RANDOM_RETURNS_FILE = "random_returns.json"
"""The cache file, in the folder of run folders."""
EPISODES = 100
SEED = 0
WAIT_SECONDS = 600.0
"""How long a Trial waits at its end for the measurement."""


def known_random_return(cache: Path, spec: EnvSpec) -> float | None:
    """The mean return shipped with the lab or measured here; None if neither exists."""
    shipped = shipped_random_return(spec)
    return cached_random_return(cache, spec) if shipped is None else shipped


def cached_random_return(cache: Path, spec: EnvSpec) -> float | None:
    """The measured mean return; None if it was not measured with these package versions."""
    value = read_object(cache).get(_key(spec))
    return float(value) if isinstance(value, int | float) else None


@final
class RandomBaseline:
    """The Random agent's mean return, measured beside a training if it is unknown."""

    def __init__(self, cache: Path, spec: EnvSpec, imports: tuple[str, ...]) -> None:
        self._known = cache, spec
        args = cache, spec, imports, os.getpid()
        self._process: BaseProcess | None = None
        if known_random_return(cache, spec) is None:
            self._process = new_process(measure_main, args, "random-baseline")

    def measure(self) -> None:
        """Starts the measurement if it is needed. May be called repeatedly."""
        if self._process is None:
            return
        if self._process.pid is None:
            with suppress(OSError):  # the Sessions need more resources and will report it
                start(self._process)
        else:
            self._process.is_alive()  # reaps the process once it has ended

    def result(self, keep_waiting: Callable[[], bool] = lambda: True) -> float | None:
        """Waits for a measurement that has started, while `keep_waiting`; None if it is unknown."""
        process = self._process
        if process is not None and process.pid is not None:
            wait_until(lambda: not (process.is_alive() and keep_waiting()), WAIT_SECONDS, TICK)
        return known_random_return(*self._known)

    def close(self) -> None:
        """Ends a measurement that still runs."""
        if self._process is not None:
            end(self._process)


def measure_main(cache: Path, spec: EnvSpec, imports: tuple[str, ...], parent: int) -> None:
    """The target of a process: measures and adds the result to the cache file. A failure
    goes to stderr and does not stop the training. The metrics that need the number are then
    missing, with a reason."""
    die_with_parent(parent)
    ignore_terminal()
    # What an environment prints when it is made is in the logs of the Sessions.
    log = logging.FileHandler(os.devnull, delay=True)
    logging.getLogger("slm_lab").addHandler(log)
    try:
        with _locked(cache):
            if cached_random_return(cache, spec) is not None:
                return  # another process has measured it meanwhile
            with printing_to(text_log()):
                import_plugins(imports)
            known = {**read_object(cache), _key(spec): measure_random_return(spec)}
            write_atomically(cache, json.dumps(known, indent=2, sort_keys=True).encode())
    except (LabError, OSError) as error:
        print(f"no return of the Random agent: {error}", file=sys.stderr)
    except Exception as error:  # from the user's environment; the Sessions show the traceback
        what = f"{spec.name} failed: {type(error).__name__}: {error}"
        print(f"no return of the Random agent: {what}", file=sys.stderr)
    finally:
        logging.getLogger("slm_lab").removeHandler(log)
        log.close()


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """Holds a file lock, so that trials that begin at once measure the number only once."""
    lock = open_own(cache.with_name(f".{cache.stem}.lock"), os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def measure_random_return(spec: EnvSpec, episodes: int = EPISODES) -> float:
    """Mean raw return of uniformly random actions. Raises LabError if episodes do not end."""
    from gymnasium.vector.utils import batch_space

    from slm_lab.env.make import make_env

    num_envs = play_episodes.even_num_envs(episodes)
    raw = spec.model_copy(
        update={"num_envs": num_envs, "normalize_obs": False, "normalize_reward": False}
    )
    with closing(make_env(raw, SEED)) as env:
        actions = batch_space(env.action_space, num_envs)
        actions.seed(SEED)
        parts = play_episodes.finished_episodes(
            env,
            lambda _: np.asarray(actions.sample()),
            episodes // num_envs,
            spec.name,
            play_episodes.step_bound(spec),
        )
        played = play_episodes.join_episodes(list(parts))
    return float(played.episode_return.mean())


def _key(spec: EnvSpec) -> str:
    """The cache key: the environment, its arguments and the simulator's versions."""
    of_backend = ("envpool",) if spec.backend == "envpool" else ()
    names = "gymnasium", "ale-py", "mujoco", *of_backend
    packages = [f"{name}={found}" for name in names if (found := installed(name))]
    return f"{environment_key(spec)} {' '.join(packages)}"


def environment_key(spec: EnvSpec, leave_out: frozenset[str] = frozenset()) -> str:
    """The environment, and the arguments and wrappers that change its raw returns; `leave_out`
    names arguments that do not."""
    kept = {key: value for key, value in spec.arguments.items() if key not in leave_out}
    arguments = json.dumps(kept, sort_keys=True, default=str)
    wrappers = f" {json.dumps(spec.wrapped_by, sort_keys=True)}" if spec.wrappers else ""
    options = ""
    if spec.reset_options:
        options = f" reset_options={json.dumps(spec.reset_options, sort_keys=True)}"
    return f"{spec.name} max_t={spec.max_t} {arguments}{wrappers}{options}"


def shipped_random_return(spec: EnvSpec) -> float | None:
    """The shipped mean return; None without one, or with another major version of the simulator."""
    entry = _shipped().get(environment_key(spec, LEARNER_ONLY))
    if entry is None or spec.backend != "gymnasium":
        return None
    packages = entry["packages"]
    if any(
        (installed(package) or "").partition(".")[0] != measured.partition(".")[0]
        for package, measured in packages.items()
    ):
        return None
    return float(entry["return"])


@lru_cache
def _shipped() -> Mapping[str, Any]:
    return json.loads(SHIPPED.read_text(encoding="utf-8"))
