"""The mean return of the Random agent: the zero point of the `strength` metric.

The lab ships this return for many environments, from `bench.random_returns`. Others are
measured after the training, in a tenth of its time."""

import fcntl
import hashlib
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from slm_lab.core.errors import LabError
from slm_lab.core.files import open_own, read_object, write_atomically
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import (
    die_with_parent,
    ignore_terminal,
    kill_descendants,
    printing_to,
    seed_global_generators,
    text_log,
)
from slm_lab.core.recorded import value_at
from slm_lab.core.registry import import_failure
from slm_lab.core.text import error_summary, escape_line
from slm_lab.env.failure import EnvironmentFailedError
from slm_lab.env.pool_names import names_envpool
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.env.versions import code_digest, comes_from
from slm_lab.metrics.trial_metrics import NOT_MEASURED as UNKNOWN
from slm_lab.parallel.fork_server import end, new_process, start
from slm_lab.parallel.supervisor import TICK
from slm_lab.parallel.wait import wait_until
from slm_lab.records.origin import installed
from slm_lab.session import play_episodes
from slm_lab.spec.schema.env import EnvSpec

SHIPPED = Path(__file__).with_name("shipped_returns.json")
LEARNER_ONLY = frozenset({"life_loss_info"})
"""Arguments that do not change the returns of whole games."""
RANDOM_RETURNS_FILE = "random_returns.json"
"""The cache file, in the folder of run folders."""
EPISODES = 100
LEAST_EPISODES = 5
"""The fewest episodes whose mean is used."""
SEED = 0
LONGEST = 500
"""Characters of an environment's error that are kept."""
SHARE = 0.1
"""The share of a training's time that the measurement may take at its end."""
LEAST_SECONDS = 3.0
"""The seconds that it may take after a short training."""
START_SECONDS = 30.0
"""How much longer its process may take, to start and to make the environment."""


class RandomReturn(NamedTuple):
    """What is known of the Random agent in an environment."""

    mean: float | None
    """Its mean return; None if it is unknown."""
    episodes: int = 0
    episode_length: float | None = None
    """Mean steps of an episode."""
    why: str = UNKNOWN
    """Why there is no mean."""
    seconds: float = 0.0
    """How long it was measured at most."""

    def is_enough(self, seconds: float) -> bool:
        """Whether a measurement of `seconds` would add nothing. This is so if all
        episodes were played, or if the last attempt had more than half the time. So a
        failure is not repeated either."""
        return self.episodes >= EPISODES or seconds < 2 * self.seconds


NOT_MEASURED = RandomReturn(None)


def known_random_return(cache: Path, spec: EnvSpec) -> RandomReturn:
    """What is shipped with the lab or was measured here. Raises as `measured_key`."""
    return shipped_random_return(spec) or cached_random_return(
        cache, measured_key(spec)
    )


def cached_random_return(cache: Path, key: str) -> RandomReturn:
    """What was measured under a `measured_key`, or why that failed."""
    record = value_at({"record": read_object(cache).get(key)}, "record", {})
    mean, length = (
        value_at(record, name, math.nan) for name in ("return", "episode_length")
    )
    return RandomReturn(
        mean=None if math.isnan(mean) else float(mean),
        episodes=int(value_at(record, "episodes", 0.0)),
        episode_length=None if math.isnan(length) else float(length),
        why=value_at(record, "why", "") or NOT_MEASURED.why,
        seconds=float(value_at(record, "seconds", 0.0)),
    )


@final
class RandomBaseline:
    """The Random agent's mean return in the environment of a training."""

    def __init__(self, cache: Path, spec: EnvSpec, imports: tuple[str, ...]) -> None:
        self._cache = cache
        self._spec = spec
        self._imports = imports
        self._key = ""
        self._without_key: RandomReturn | None = None
        """What is known without a key: what is shipped, or that there is no such
        environment."""
        try:
            self._without_key = shipped_random_return(spec)
            if self._without_key is None:
                self._key = measured_key(spec)  # of the code as it is now
        except LabError as error:
            self._without_key = RandomReturn(None, why=str(error), seconds=math.inf)

    @property
    def known(self) -> RandomReturn:
        """What is known without a measurement."""
        return self._without_key or cached_random_return(self._cache, self._key)

    def measured(
        self, seconds: float, keep_waiting: Callable[[], bool]
    ) -> RandomReturn:
        """What is known after a measurement of at most `seconds`, if one is needed.
        `keep_waiting` is called a few times a second and may end it."""
        if self.known.is_enough(seconds):
            return self.known
        task = self._cache, self._key, self._spec, self._imports, seconds, os.getpid()
        process = new_process(measure_main, task, "random-baseline")
        try:
            start(process)
        except OSError as error:
            return self.known._replace(
                why=f"the random agent cannot be started: {error}"
            )
        try:
            has_ended = wait_until(
                lambda: not (process.is_alive() and keep_waiting()),
                seconds + START_SECONDS,
                TICK,
            )
        finally:
            end(process)
        if not has_ended:
            self._note_hang(seconds)
        return self.known

    def _note_hang(self, seconds: float) -> None:
        """Remembers a failure, unless another run was measuring, which the process
        waited for."""
        why = (
            "a step of the random agent did not end within "
            f"{seconds + START_SECONDS:.0f} s"
        )
        with suppress(LabError, OSError), _lock_file(self._cache) as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(self._key))
            _remember(
                lock,
                self._cache,
                self._key,
                RandomReturn(None, why=why, seconds=seconds),
            )


def measure_main(
    cache: Path,
    key: str,
    spec: EnvSpec,
    imports: tuple[str, ...],
    seconds: float,
    parent: int,
) -> None:
    """The target of a process. It measures for at most `seconds`, and adds the result
    or the failure to the cache file. A failure also goes to stderr; it does not stop
    the training."""
    die_with_parent(parent)
    ignore_terminal()
    seed_global_generators(SEED)
    # What an environment prints when it is made is in the logs of the Sessions.
    log = logging.FileHandler(os.devnull, delay=True)
    logging.getLogger("slm_lab").addHandler(log)
    try:
        with printing_to(text_log()):
            import_plugins(imports)
        if measured_key(spec) != key:
            raise LabError(
                f"the code of {spec.name} has changed since the training began"
            )
        with _lock_file(cache) as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX, 1, _place(key))
            if cached_random_return(cache, key).is_enough(seconds):
                return  # another process has measured it meanwhile
            measured = _try_to_measure(spec, seconds)
            _remember(lock, cache, key, measured)
    except (LabError, OSError) as error:
        measured = RandomReturn(None, why=str(error))
    finally:
        logging.getLogger("slm_lab").removeHandler(log)
        log.close()
        kill_descendants()
    if measured.mean is None:
        print(f"no return of the Random agent: {measured.why}", file=sys.stderr)


def _try_to_measure(spec: EnvSpec, seconds: float) -> RandomReturn:
    try:
        return measure_random_return(spec, EPISODES, seconds)._replace(seconds=seconds)
    except EnvironmentFailedError as error:
        why = f"{spec.name} failed: {error_summary(error)}"
    except LabError as error:
        why = str(error)
    except (Exception, SystemExit) as error:  # from the user's environment
        why = f"{spec.name} failed: {type(error).__name__}: {error}"
    return RandomReturn(None, why=escape_line(why)[:LONGEST], seconds=seconds)


@contextmanager
def _lock_file(cache: Path) -> Iterator[int]:
    """The file whose bytes are locked. The first byte is locked while the cache is
    written. Each key has a byte that is locked while it is measured. So two runs
    measure the same number only once, and wait for no other. The locks belong to the
    process, and end when it closes the file anywhere."""
    lock = open_own(cache.with_name(f".{cache.stem}.lock"), os.O_WRONLY | os.O_CREAT)
    try:
        yield lock
    finally:
        os.close(lock)


def _place(key: str) -> int:
    """The byte of the lock file that stands for a key."""
    return 1 + int.from_bytes(hashlib.sha256(key.encode()).digest()[:6])


def _remember(lock: int, cache: Path, key: str, measured: RandomReturn) -> None:
    """Adds a measurement to the cache, or the seconds of one that found out less than
    before."""
    fcntl.lockf(lock, fcntl.LOCK_EX, 1, 0)
    before = cached_random_return(cache, key)
    if before.episodes > measured.episodes:
        measured = before._replace(seconds=measured.seconds)
    record = {
        "return": measured.mean,
        "episodes": measured.episodes,
        "episode_length": measured.episode_length,
        "why": None if measured.mean is not None else measured.why,
        "seconds": measured.seconds,
    }
    known = {**read_object(cache), key: record}
    write_atomically(cache, json.dumps(known, indent=2, sort_keys=True).encode())


def measure_random_return(
    spec: EnvSpec, episodes: int = EPISODES, seconds: float = math.inf
) -> RandomReturn:
    """Mean raw return of uniformly random actions, in at most `spec.num_envs` copies.
    With several agents it is the mean over the episodes of all agents in one copy. All
    copies contribute the same number of their first episodes. After half of the
    `seconds` a copy begins an episode only to complete this number. Dropping the
    episodes that still run would favour short ones. Raises LabError if an episode does
    not end."""
    from slm_lab.core.actions import RandomActions
    from slm_lab.env.make import make_env

    num_envs = 1
    if not spec.has_agents:
        num_envs = play_episodes.even_num_envs(episodes, spec.num_envs)
    per_env = rounds = episodes // num_envs
    raw = spec.model_copy(
        update={"num_envs": num_envs, "normalize_obs": False, "normalize_reward": False}
    )
    ended: list[list[FinishedEpisodes]] = [[] for _ in range(num_envs)]
    """The episodes of each copy."""
    is_late = False

    def least() -> int:
        return min(map(len, ended))

    def is_over() -> bool:
        nonlocal is_late, rounds
        passed = time.monotonic() - began
        if passed > seconds / 2 and not is_late:
            is_late = True
            rounds = least() + 1
        return passed > seconds or least() >= rounds

    with closing(make_env(raw, SEED)) as env:
        began = time.monotonic()
        actions = RandomActions(env.action_space, env.num_envs, SEED, env.layout)
        parts = play_episodes.finished_episodes(
            env=env,
            choose_action=actions.draw,
            per_env=per_env,
            name=spec.name,
            max_steps=play_episodes.step_bound(spec),
            stop=is_over,
        )
        for part in parts:
            copy_of = part.env_index // env.num_agents
            for copy in np.unique(copy_of).tolist():
                columns = (column[copy_of == copy] for column in part)
                ended[copy].append(FinishedEpisodes._make(columns))
    played = least()
    if played * num_envs < min(episodes, LEAST_EPISODES):
        raise LabError(
            f"{played * num_envs} episodes of the random agent ended in {seconds:.3g} "
            f"s, and {LEAST_EPISODES} are needed; a longer training measures longer"
        )
    whole = play_episodes.join_episodes(
        [of_copy[number] for number in range(played) for of_copy in ended]
    )
    return RandomReturn(
        mean=float(whole.episode_return.mean()),
        episodes=played * num_envs,
        episode_length=float(whole.episode_length.mean()),
    )


def measured_key(spec: EnvSpec) -> str:
    """The key of a measurement: the environment, its arguments, and the code that it
    runs. Raises LabError as `find_env`, or if the code does not import."""
    of_backend = ("envpool",) if names_envpool(spec) else ()
    names = "gymnasium", "ale-py", "mujoco", *of_backend
    packages = [f"{name}={version}" for name in names if (version := installed(name))]
    try:
        code = code_digest(spec)
    except LabError:
        raise
    except Exception as error:
        raise LabError(f"{spec.name}: {import_failure(error)}") from error
    return f"{environment_key(spec)} {' '.join(packages)} {code}"


def environment_key(spec: EnvSpec, leave_out: frozenset[str] = frozenset()) -> str:
    """The environment, and the arguments and wrappers that change its raw returns;
    `leave_out` names arguments that do not."""
    kept = {key: value for key, value in spec.arguments.items() if key not in leave_out}
    arguments = json.dumps(kept, sort_keys=True, default=str)
    wrappers = ""
    if spec.wrappers:
        wrappers = f" {json.dumps(spec.wrapped_by, sort_keys=True)}"
    options = ""
    if spec.reset_options:
        options = f" reset_options={json.dumps(spec.reset_options, sort_keys=True)}"
    mask = "" if spec.action_mask is None else f" mask={spec.action_mask}"
    return f"{spec.name} max_t={spec.max_t} {arguments}{wrappers}{options}{mask}"


def shipped_random_return(spec: EnvSpec) -> RandomReturn | None:
    """The return that is shipped with the lab. None without one, for another major
    version of the simulator, or if the name stands for other code here. Raises LabError
    as `find_env`."""
    entry = _shipped().get(environment_key(spec, LEARNER_ONLY))
    if entry is None or spec.backend != "gymnasium":
        return None
    packages = entry["packages"]
    if not comes_from(spec, packages) or any(
        (installed(package) or "").partition(".")[0] != measured.partition(".")[0]
        for package, measured in packages.items()
    ):
        return None
    return RandomReturn(entry["return"], entry["episodes"], entry.get("episode_length"))


@lru_cache
def _shipped() -> Mapping[str, Any]:
    return json.loads(SHIPPED.read_text(encoding="utf-8"))
