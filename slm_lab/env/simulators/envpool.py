"""envpool: the same environments, stepped by threads in C++ (Weng et al.,
arXiv:2206.10558).

envpool resets in the step after the end of an episode. It reports an episode that
terminates at its step limit as truncated only. So envpool gets no limit: this module
counts the steps, and resets an ended episode at once, without a wasted action."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias, final

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from typing_extensions import override

from slm_lab.core.errors import Problem, SpecError
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, BoolArray, IntArray, StateDict
from slm_lab.env.failure import close_all
from slm_lab.env.interface import Env
from slm_lab.env.lookup import (
    import_extra,
    in_families,
    known_warnings_ignored,
    step_limit,
)
from slm_lab.env.simulators.atari import (
    AtariKeys,
    atari_keys,
    is_atari,
    variant_problems,
)
from slm_lab.env.vector.raw import RawEnvs, RawStep, check_actions, env_seeds
from slm_lab.spec.schema.env import EnvSpec

EnvPool: TypeAlias = Any
"""A vector environment of envpool, which creates its classes at run time."""

NO_LIMIT = 2**31 - 1
"""The max_episode_steps with which envpool never truncates."""

THREAD_KEYS = frozenset({"num_threads", "thread_affinity_offset"})
"""Keys of every pool that single environments do not have."""

COMPARED = "gymnasium.envs."
"""The entry points of environments that envpool reproduces."""

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


def is_pooled(spec: EnvSpec) -> bool:
    """Whether envpool steps the environments of `spec`; single ones are always
    Gymnasium's."""
    return spec.backend == "envpool" and spec.vectorization_mode in (None, "native")


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
    if not compared or task not in _envpool().list_all_envs():
        return [
            Problem(
                "env.backend", f'envpool has no {entry.id}; use "gymnasium"', "envpool"
            )
        ]
    if is_atari(entry):
        keys = atari_keys(spec, entry)
        return [*_game_problems(keys), *variant_problems(keys, entry)]
    pool_keys = set(_envpool().make_spec(task).config._asdict())
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
                f'its {what} are {theirs} and Gymnasium\'s {ours}; use "gymnasium"'
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
    ) -> None:
        self.num_envs = num_envs
        self.exact_state = False
        self._make = make
        self._seed = seed
        self._max_steps = NO_LIMIT if max_steps is None else max_steps
        self._life_loss = life_loss
        self._steps = 0
        self._began = np.zeros(num_envs, np.int64)
        """_steps at the start of each episode."""
        self._lives: IntArray = np.zeros(num_envs, np.int64)
        self._pool = make(env_seeds(seed, num_envs))
        with known_warnings_ignored():
            self.observation_space = self._pool.observation_space
            self.action_space = self._pool.action_space

    @override
    def reset(self) -> Array:
        obs, info = self._pool.reset()
        self._began[:] = self._steps
        if self._life_loss:
            self._lives = info["lives"]
        return np.asarray(obs)

    @override
    def step(self, action: Array) -> RawStep:
        # For an invalid action envpool would take another one.
        check_actions("envpool", action, self.action_space)
        obs, reward, terminated, _, info = self._pool.step(action)
        self._steps += 1
        reward = reward.astype(np.float64)
        truncated = self._steps - self._began >= self._max_steps
        over = terminated | truncated
        if self._life_loss:
            terminated = terminated | self._lost_life(info["lives"])
        done = over | terminated
        if not np.count_nonzero(done):
            return RawStep(obs, reward, terminated, truncated)
        done_index = done.nonzero()[0]
        final_obs = obs[done_index]
        self._begin_episodes(over.nonzero()[0], obs)
        return RawStep(
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
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
        obs[index], info = self._pool.reset(index.astype(np.int32))
        self._began[index] = self._steps
        if self._life_loss:
            self._lives[index] = info["lives"]

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        # new episodes start with seeds that were not used before
        self._pool = self._make(env_seeds([self._seed, self._steps], self.num_envs))

    @override
    def close(self) -> None:
        self._pool = None  # this ends its threads


def _maker(
    task: str, num_envs: int, arguments: Mapping[str, Any]
) -> Callable[[list[int]], EnvPool]:
    envpool = _envpool()

    def make(seeds: list[int]) -> EnvPool:
        settings = {
            "num_envs": num_envs,
            "env_seed": seeds,
            "max_episode_steps": NO_LIMIT,
        }
        return envpool.make_gymnasium(task, **settings, **arguments)

    return make


def _envpool() -> Any:
    return import_extra("envpool", "envpool")


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
        and continuous in _envpool().list_all_envs()
    ):
        return f"{message}; use {continuous} without it"
    return f"{message}; they know {', '.join(known)}"


def _kind(space: gymnasium.Space[Any]) -> tuple[Any, ...]:
    """The parts of a space that must be equal for the same networks to fit."""
    return type(space), space.shape, getattr(space, "n", None)
