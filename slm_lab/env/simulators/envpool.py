"""envpool: environments of many libraries, stepped by threads in C++ (Weng et al.,
arXiv:2206.10558).

envpool resets in the step after the end of an episode. This module resets an ended
episode at once, without a wasted action. envpool reports an episode that terminates at
its step limit as truncated only. So an environment that Gymnasium has too gets no
limit, and this module counts its steps. One that envpool alone has keeps its limit,
which its rewards and observations may depend on."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias, final

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from typing_extensions import override

from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, BoolArray, IntArray
from slm_lab.env.convert.batch import BatchView
from slm_lab.env.extras import known_warnings_ignored
from slm_lab.env.failure import close_all
from slm_lab.env.interface import AnySpace, Env
from slm_lab.env.lookup import in_families, step_limit
from slm_lab.env.pool_names import COMPARED, MUJOCO, import_envpool, opengl_fault
from slm_lab.env.simulators.atari import (
    AtariKeys,
    atari_keys,
    is_atari,
    variant_problems,
)
from slm_lab.env.simulators.film import FPS
from slm_lab.env.vector.raw import RawEnvs, RawStep, check_actions, env_seeds
from slm_lab.env.wrappers import Argument, Arguments
from slm_lab.spec.schema.env import EnvSpec

EnvPool: TypeAlias = Any
"""A vector environment of envpool, which creates its classes at run time."""

NO_LIMIT = 2**31 - 1
"""The max_episode_steps with which envpool never truncates."""

THREAD_KEYS = frozenset({"num_threads", "thread_affinity_offset"})
"""Keys of every pool that single environments do not have."""

SET_BY_THE_LAB = frozenset(
    {
        "num_envs",
        "batch_size",
        "max_num_players",
        "base_path",
        "seed",
        "env_seed",
        "gym_reset_return_info",
        "max_episode_steps",
        "reward_threshold",
    }
)
"""Keys of every pool that are no arguments of a spec."""

DRAWING = {
    "render_mode": Argument(str, (None,)),
    "from_pixels": Argument(bool),
    "render_width": Argument(int),
    "render_height": Argument(int),
    "render_camera_id": Argument(int),
}
"""Arguments of every pool that are no keys of its configuration."""

SAME_KEYS = (
    "img_height",
    "img_width",
    "stack_num",
    "noop_max",
    "use_fire_reset",
    "full_action_space",
    "repeat_action_probability",
    "mode",
    "difficulty",
    "num_threads",
    "thread_affinity_offset",
)
KEYS_OF_A_GAME = {
    "frameskip": "frame_skip",
    "grayscale": "gray_scale",
    **{key: key for key in SAME_KEYS},
}
"""The keys of a game in ale-py and in envpool."""


def pool_problems(
    spec: EnvSpec, entry: GymnasiumSpec, accepted: set[str] | None
) -> list[Problem]:
    """The problems of `spec` with envpool. `accepted` are the arguments of the single
    environment, None: any. Raises MissingExtraError without envpool, SpecError for keys
    that no game has."""
    task = task_of(entry)
    compared = is_atari(entry) or (
        in_families(entry, COMPARED) and not entry.additional_wrappers
    )
    if not compared or task not in import_envpool().list_all_envs():
        return [
            Problem(
                "env.backend", f'envpool has no {entry.id}; use "gymnasium"', "envpool"
            )
        ]
    if spec.action_mask is not None:
        message = "envpool has no masks of Gymnasium's environments"
        return [
            Problem("env.backend", f'{message}; use "gymnasium"', "envpool"),
        ]
    if is_atari(entry):
        keys = atari_keys(spec, entry)
        return [*_game_problems(keys), *variant_problems(keys, entry)]
    pool_keys = set(import_envpool().make_spec(task).config._asdict())
    known = (pool_keys if accepted is None else pool_keys & accepted) | THREAD_KEYS
    return [
        Problem(f"env.{key}", _unknown(key, value, entry, sorted(known)), value)
        for key, value in spec.arguments.items()
        if key not in known
    ]


def task_of(entry: GymnasiumSpec) -> str:
    """The name in envpool; for a game the name of the v5 id, whose keys configure
    it."""
    if not is_atari(entry):
        return entry.id
    return (
        "".join(word.capitalize() for word in entry.kwargs["game"].split("_")) + "-v5"
    )


def make_pooled_game(
    keys: AtariKeys, entry: GymnasiumSpec, num_envs: int, seed: int
) -> RawEnvs:
    """`num_envs` games, which continue after a lost life."""
    keys_of_game = {word: getattr(keys, key) for key, word in KEYS_OF_A_GAME.items()}
    arguments = {
        word: value for word, value in keys_of_game.items() if value is not None
    }
    make = _maker(task_of(entry), num_envs, arguments)
    return EnvpoolEnvs(
        make, num_envs, seed, keys.max_steps, life_loss=keys.life_loss_info
    )


def make_pooled(
    spec: EnvSpec, entry: GymnasiumSpec, make_one: Callable[[], Env], seed: int
) -> RawEnvs:
    """The environments of `spec`, with the spaces of `make_one`: envpool's bounds
    differ, and are invalid for Box2D. Raises SpecError if its spaces differ in kind or
    shape."""
    single = make_one()
    close_all([single.close], spec.name)
    limit = step_limit(spec, entry)
    make = _maker(task_of(entry), spec.num_envs, spec.arguments)
    envs = EnvpoolEnvs(make, spec.num_envs, seed, limit)
    pairs = {
        "observations": (envs.observation_space, single.observation_space),
        "actions": (envs.action_space, single.action_space),
    }
    for what, (theirs, ours) in pairs.items():
        if _kind(theirs) != _kind(ours):
            message = (
                f"its {what} are {theirs} and Gymnasium's {ours}; use "
                f'"gymnasium", or the name envpool:{entry.id}'
            )
            raise SpecError.of("env", "env.backend", message, "envpool")
    envs.observation_space = single.observation_space
    envs.action_space = single.action_space
    return envs


@final
class EnvpoolEnvs(SavedFields, RawEnvs):
    """N environments of a pool, whose state is not accessible."""

    saved: ClassVar = {"steps": "_steps"}

    def __init__(
        self,
        make: Callable[[list[int]], EnvPool],
        num_envs: int,
        seed: int,
        max_steps: int | None,
        life_loss: bool = False,
        view: BatchView | None = None,
    ) -> None:
        self.num_envs = num_envs
        self.exact_state = False
        self._make = make
        self._seed = seed
        self._max_steps = NO_LIMIT if max_steps is None else max_steps
        self._life_loss = life_loss
        self._view = view
        self._steps = 0
        self._began = np.zeros(num_envs, np.int64)
        """_steps at the start of each episode."""
        self._lives: IntArray = np.zeros(num_envs, np.int64)
        self._pool = make(env_seeds(seed, num_envs))
        with known_warnings_ignored():
            self.observation_space = self._pool.observation_space
            self.action_space = self._pool.action_space
        if view is not None:
            self.observation_space = view.space

    @override
    def reset(self) -> Array:
        obs, info = self._pool.reset()
        self._began[:] = self._steps
        if self._life_loss:
            self._lives = info["lives"]
        return self._seen(obs, info, "reset", self.num_envs)

    def _seen(
        self,
        obs: Any,
        info: Mapping[str, Any],
        method: str,
        count: int,
        is_last: bool | BoolArray = False,
    ) -> Array:
        """`count` observations of the pool, (count, ...) in `observation_space`."""
        if self._view is None:
            return np.asarray(obs)
        return self._view.observe(obs, info, method, count, is_last=is_last)

    @override
    def step(self, action: Array) -> RawStep:
        # For an invalid action envpool would take another one.
        check_actions("envpool", action, self.action_space)
        observed, reward, terminated, is_cut, info = self._pool.step(action)
        self._steps += 1
        reward = reward.astype(np.float64)
        truncated = is_cut | (self._steps - self._began >= self._max_steps)
        over = terminated | truncated
        obs = self._seen(observed, info, "step", self.num_envs, is_last=over)
        if self._view is not None and self._view.masks is not None:
            terminated = terminated | (over & self._view.allows_nothing(obs))
        if self._life_loss:
            terminated = terminated | self._lost_life(info["lives"])
        done = over | terminated
        step = RawStep(obs, reward, terminated, truncated)
        if not np.count_nonzero(done):
            return step
        done_index = done.nonzero()[0]
        final_obs = obs[done_index]
        self._begin_episodes(over.nonzero()[0], obs)
        return step._replace(
            done_index=done_index,
            final_obs=final_obs,
            over=over[done_index],
        )

    def _lost_life(self, lives: IntArray) -> BoolArray:
        """(N,) whether lives were lost in this step, but not the last one."""
        lost: BoolArray = (lives > 0) & (lives < self._lives)
        self._lives = lives.copy()
        return lost

    def _begin_episodes(self, index: IntArray, obs: Array) -> None:
        if len(index) == 0:
            return
        first, info = self._pool.reset(index.astype(np.int32))
        obs[index] = self._seen(first, info, "reset", len(index))
        self._began[index] = self._steps
        if self._life_loss:
            self._lives[index] = info["lives"]

    @override
    def after_load(self) -> None:
        # new episodes start with seeds that were not used before
        self._pool = self._make(env_seeds([self._seed, self._steps], self.num_envs))

    @override
    def close(self) -> None:
        self._pool = None  # this ends its threads


class PoolSpaces(NamedTuple):
    """The spaces of one environment of a pool."""

    observation: AnySpace
    action: AnySpace


def make_pool(spec: EnvSpec, entry: GymnasiumSpec, seed: int) -> RawEnvs:
    """The environments of `spec`, which envpool alone has. Raises SpecError for spaces
    that the lab does not support, and for games of several players."""
    arguments = {**entry.kwargs, **spec.arguments}
    task = arguments.pop("task")
    of_pool = spaces_of(spec.name, task, arguments)
    view = BatchView.of(spec, of_pool.observation, of_pool.action)
    envs = EnvpoolEnvs(
        make=partial(_make_pool, task, arguments),
        num_envs=spec.num_envs,
        seed=seed,
        max_steps=spec.max_t,
        view=view,
    )
    envs.action_space = of_pool.action
    return envs


def spaces_of(name: str, task: str, arguments: Mapping[str, Any]) -> PoolSpaces:
    """The spaces of `task`, whose environment is called `name`. Raises SpecError for a
    game of several players."""
    with known_warnings_ignored():
        described = import_envpool().make_spec(task, **arguments)
        players = described.config.max_num_players
        if players > 1:
            message = (
                f"up to {players} players act in it, and the lab trains one: self-play "
                "is not for this lab"
            )
            raise SpecError.of("env", "env.name", message, name)
        return PoolSpaces(
            _with_true_bounds(described.gymnasium_observation_space),
            _countable(described.gymnasium_action_space),
        )


def _with_true_bounds(space: AnySpace) -> AnySpace:
    """`space`; where a Box of envpool begins with the smallest positive number, it
    means the most negative one."""
    if isinstance(space, spaces.Dict):
        parts = {key: _with_true_bounds(part) for key, part in space.items()}
        return spaces.Dict(parts)
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        return space
    tiny = np.finfo(space.dtype).tiny
    low = np.where(space.low == tiny, -np.inf, space.low)
    return spaces.Box(low, space.high, dtype=space.dtype.type)


def _countable(space: AnySpace) -> AnySpace:
    """The actions `space`; whole numbers between bounds are choices."""
    if not isinstance(space, spaces.Box) or space.dtype.kind not in "iu":
        return space
    sizes = space.high.astype(np.int64) - space.low + 1
    return spaces.MultiDiscrete(sizes, start=space.low.astype(np.int64))


def pool_arguments(entry: GymnasiumSpec) -> Arguments:
    """The arguments of an environment that envpool alone has. Raises ImportError for a
    missing library."""
    config = import_envpool().make_spec(entry.kwargs["task"]).config._asdict()
    named = {
        key: Argument(type(value), (value,))
        for key, value in config.items()
        if key not in SET_BY_THE_LAB
    }
    return Arguments(DRAWING | named, open_ended=False)


METADATA: dict[str, Any] = {
    "render_modes": ["rgb_array", "human"],
    "render_fps": FPS,
}
"""The metadata of every environment of envpool, which has no frame rates."""


@final
class PooledEnv(gymnasium.Env[Any, Any]):
    """One environment that envpool alone has. Its generator draws the seed of each of
    its pools; a reset with a seed makes another one."""

    metadata = METADATA

    def __init__(
        self, task: str, render_mode: str | None = None, **arguments: Any
    ) -> None:
        self.render_mode = render_mode
        self._arguments = {"render_mode": render_mode, "num_threads": 1, **arguments}
        self._task = task
        self._pool: EnvPool = None
        self.observation_space, self.action_space = spaces_of(task, task, arguments)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None or self._pool is None:
            drawn = int(self.np_random.integers(2**31))
            self._pool = _make_pool(self._task, self._arguments, [drawn])
        obs, info = self._pool.reset()
        return _first(obs), _first(info)

    @override
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        batch = np.asarray(action)[None]
        check_actions("envpool", batch, self.action_space)
        obs, reward, terminated, truncated, info = self._pool.step(batch)
        return (
            _first(obs),
            float(reward[0]),
            bool(terminated[0]),
            bool(truncated[0]),
            _first(info),
        )

    @override
    def render(self) -> Any:
        frames = self._pool.render()
        return None if frames is None else frames[0]

    @override
    def close(self) -> None:
        self._pool = None  # this ends its thread


def _first(values: Any) -> Any:
    """The first of a batch of observations or infos, in parts or not."""
    if isinstance(values, Mapping):
        return {key: _first(part) for key, part in values.items()}
    if len(values) == 0:
        return values
    return values[0]


def _make_pool(task: str, arguments: Mapping[str, Any], seeds: list[int]) -> EnvPool:
    """The pool of `task` with an environment for each seed. Raises UsageError if it is
    to draw and cannot."""
    if arguments.get("render_mode") is not None or arguments.get("from_pixels"):
        _check_drawing(task)
    pool = import_envpool().make_gymnasium(
        task, num_envs=len(seeds), env_seed=seeds, **arguments
    )
    with known_warnings_ignored():
        _ = pool.observation_space  # made, with warnings, when it is first read
    return pool


def _check_drawing(task: str) -> None:
    """Raises UsageError if MuJoCo would end the process when it draws `task`."""
    module, *_ = import_envpool().registration.registry.specs[task]
    fault = opengl_fault()
    if module.startswith(MUJOCO) and fault is not None:
        raise UsageError(f"{task} cannot be drawn: {fault}")


def _maker(
    task: str, num_envs: int, arguments: Mapping[str, Any]
) -> Callable[[list[int]], EnvPool]:
    envpool = import_envpool()

    def make(seeds: list[int]) -> EnvPool:
        settings = {
            "num_envs": num_envs,
            "env_seed": seeds,
            "max_episode_steps": NO_LIMIT,
        }
        return envpool.make_gymnasium(task, **settings, **arguments)

    return make


def _game_problems(keys: AtariKeys) -> Iterator[Problem]:
    """Settings that ale-py supports and envpool does not."""
    refused = {
        "maxpool": (
            not keys.maxpool,
            "envpool always pools the last two frames; use true",
        ),
        "continuous": (keys.continuous, "envpool has no continuous actions; use false"),
        "noop_max": (keys.noop_max < 1, "must be >= 1 with envpool"),
        "render_mode": (
            keys.render_mode is not None,
            'envpool draws nothing; use vectorization_mode "sync"',
        ),
    }
    for key, (wrong, message) in refused.items():
        if wrong:
            yield Problem(f"env.{key}", message, getattr(keys, key))


def _unknown(key: str, value: object, entry: GymnasiumSpec, known: list[str]) -> str:
    message = f"envpool and Gymnasium do not both know it for {entry.id}"
    continuous = f"{entry.name}Continuous-v{entry.version}"
    if (
        key == "continuous"
        and value is True
        and continuous in import_envpool().list_all_envs()
    ):
        return f"{message}; use {continuous} without it"
    return f"{message}; they know {', '.join(known)}"


def _kind(space: gymnasium.Space[Any]) -> tuple[Any, ...]:
    """The parts of a space that must be equal for the same networks to fit."""
    return type(space), space.shape, getattr(space, "n", None)
