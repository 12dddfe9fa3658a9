"""Atari games: their keys in a spec, and the native vector environment.

DQN and Machado et al. (arXiv:1709.06009) describe the preprocessing, see
docs/environments.md. `atari_game` does the same for single environments."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from pydantic import Field, ValidationError, model_validator
from typing_extensions import override

from slm_lab.core.errors import Problem, SpecError
from slm_lab.core.types import Array, IntArray
from slm_lab.env import foreign
from slm_lab.env.lookup import ATARI_VECTOR
from slm_lab.env.vector import autoreset
from slm_lab.env.vector.raw import RawStep, check_actions, env_seeds
from slm_lab.spec.schema.block import (
    Block,
    error_line,
    key_error,
    problems_of,
    raise_errors,
)
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.fields import Int

NOT_OURS: Mapping[str, str] = {
    "game": "the game is named by env.name",
    "batch_size": "all num_envs games are stepped together",
    "autoreset_mode": "a game that is over always restarts in the same step",
    "max_episode_steps": "use max_t",
    **dict.fromkeys(
        ("obs_type", "sound_obs"), "observations are images, grayscale or in colour"
    ),
}
"""Arguments of ale-py that a spec cannot set, and why."""

JOINED = 'frame_op "stack" with frame_op_len'
"""The spec's keys for what other libraries call a frame stack."""

OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(
        ("frame_stack", "num_stack", "stack_size"), f"stack_num (or {JOINED})"
    ),
    "max_steps": "max_t",
    "frame_skip": "frameskip",
    "grayscale_obs": "grayscale",
    "screen_size": "image_downsize",
    "terminal_on_life_loss": "life_loss_info",
    "sticky_actions": "repeat_action_probability",
}
"""Names of other libraries for keys, and the key."""

REFUSED = {key: f"cannot be set: {why}" for key, why in NOT_OURS.items()} | {
    alias: f"unknown key; did you mean {key}?" for alias, key in OTHER_NAMES.items()
}

FULL_GAME = (
    "in ale-py it restarts the game after every lost life; so nothing after the first "
    "life is ever seen, and a score is that of one life; use life_loss_info: true, "
    "with which a lost life terminates for the learner and the game continues"
)


class AtariKeys(Block):
    """The additional keys of `env` for Atari games. They are the arguments of ale-py's
    `AtariVectorEnv`, with the defaults of the v5 ids."""

    repeat_action_probability: float = Field(
        0.25,
        ge=0,
        le=1,
        description="sticky actions: probability of repeating the previous action",
    )
    frameskip: Int = Field(4, ge=1, description="frames per action")
    maxpool: bool = Field(
        True, description="take the maximum of the last two frames, per pixel"
    )
    grayscale: bool = Field(
        True, description="one channel per frame; false: three channels"
    )
    img_height: Int = Field(84, ge=1, description="pixels")
    img_width: Int = Field(84, ge=1, description="pixels")
    stack_num: Int = Field(
        4, ge=1, description="frames per observation, the newest last"
    )
    noop_max: Int = Field(
        30, ge=0, description="a game starts with fewer no-ops than this"
    )
    use_fire_reset: bool = Field(
        True, description="press FIRE at the start, if the game has it"
    )
    life_loss_info: bool = Field(
        False,
        description="a lost life terminates for the learner; scores count whole games",
    )
    episodic_life: bool = Field(False, description="not supported: see life_loss_info")
    reward_clipping: bool | None = Field(
        None, description="clip rewards to −1, 0, 1; null: unless clip_reward is given"
    )
    full_action_space: bool = Field(False, description="18 actions in every game")
    continuous: bool = Field(False, description="actions are radius, angle and fire")
    continuous_action_threshold: float = Field(
        0.5,
        ge=0,
        description="threshold at which a continuous action counts as pressed",
    )
    max_num_frames_per_episode: Int = Field(
        108_000, ge=1, description="frames after which a game is truncated"
    )
    num_threads: Int = Field(
        0, ge=0, description="native: threads; 0: CPU cores, at most num_envs"
    )
    thread_affinity_offset: Int = Field(
        -1, ge=-1, description="native: the core of the first thread; −1: any"
    )
    mode: Int | None = Field(
        None, ge=0, description="sync, async, envpool: mode of the game"
    )
    difficulty: Int | None = Field(
        None, ge=0, description="sync, async, envpool: difficulty of the game"
    )
    render_mode: Literal["human", "rgb_array"] | None = Field(
        None, description="sync: a window, or images"
    )

    @property
    def max_steps(self) -> int:
        """Steps after which a game is truncated."""
        return math.ceil(self.max_num_frames_per_episode / self.frameskip)

    @model_validator(mode="before")
    @classmethod
    def _refuse_keys(cls, data: Any) -> Any:
        raise_errors(
            error_line((k,), REFUSED[k], data[k]) for k in data if k in REFUSED
        )
        return data

    @model_validator(mode="after")
    def _continues_after_a_life(self) -> Self:
        if self.episodic_life:
            raise key_error("episodic_life", FULL_GAME, True)
        return self


def is_atari(entry: GymnasiumSpec) -> bool:
    """Whether `entry` is a game that the lab preprocesses."""
    return entry.vector_entry_point == ATARI_VECTOR and not entry.additional_wrappers


def atari_keys(spec: EnvSpec, entry: GymnasiumSpec) -> AtariKeys:
    """The keys of a game: as in the spec, else as registered for its id. The keys of
    every environment count as well: max_t in steps, frame_op_len, image_downsize.
    Raises SpecError."""
    registered = {key: value for key, value in entry.kwargs.items() if key != "game"}
    try:
        keys = AtariKeys.model_validate({**registered, **spec.arguments})
    except ValidationError as error:
        raise SpecError("env", problems_of(error, "env")) from None
    problems = list(_contradictions(spec, keys))
    if problems:
        raise SpecError("env", problems)
    update: dict[str, Any] = {key: value for key, _, value in _game_keys(spec, keys)}
    if keys.reward_clipping is None:
        update["reward_clipping"] = spec.clip_reward is None
    return keys.model_copy(update=update)


def _game_keys(spec: EnvSpec, keys: AtariKeys) -> Iterator[tuple[str, str, int]]:
    """The keys of a game that a key of every environment sets: both keys, and the
    value."""
    if spec.max_t is not None:
        yield "max_num_frames_per_episode", "max_t", spec.max_t * keys.frameskip
    if spec.frame_op is not None and spec.frame_op_len is not None:
        yield "stack_num", "frame_op_len", spec.frame_op_len
    if spec.image_downsize is not None:
        yield "img_width", "image_downsize", spec.image_downsize[0]
        yield "img_height", "image_downsize", spec.image_downsize[1]


def _contradictions(spec: EnvSpec, keys: AtariKeys) -> Iterator[Problem]:
    """Keys of a game that contradict a key of every environment."""
    for key, source, value in _game_keys(spec, keys):
        if key in spec.arguments and spec.arguments[key] != value:
            message = f"env.{source} makes it {value}; keep one of the two"
            yield Problem(f"env.{key}", message, spec.arguments[key])


def atari_problems(
    spec: EnvSpec, entry: GymnasiumSpec, mode: autoreset.Vectorisation
) -> list[Problem]:
    """The problems of the keys of a game."""
    try:
        keys = atari_keys(spec, entry)
    except SpecError as error:
        return list(error.problems)
    if mode != "native":
        return variant_problems(keys, entry)
    return [
        Problem(
            f"env.{key}",
            'the native vector version does not have it; use vectorization_mode "sync"',
            spec.arguments[key],
        )
        for key in sorted(autoreset.ONLY_SINGLE & spec.arguments.keys())
    ]


def variant_problems(keys: AtariKeys, entry: GymnasiumSpec) -> list[Problem]:
    """The problems of `mode` and `difficulty`. Loads the game, which takes 0.1 s."""
    if keys.mode is None and keys.difficulty is None:
        return []
    from ale_py import ALEInterface, LoggerMode, roms

    path = roms.get_rom_path(entry.kwargs["game"])
    if path is None:
        return []  # the construction of the game reports it
    ALEInterface.setLoggerMode(LoggerMode.Error)  # without this it prints a banner
    game = ALEInterface()
    game.loadROM(path)
    settings = [
        ("mode", keys.mode, "modes", game.getAvailableModes()),
        (
            "difficulty",
            keys.difficulty,
            "difficulties",
            game.getAvailableDifficulties(),
        ),
    ]
    return [
        Problem(f"env.{key}", f"{entry.id} has the {what} {_listed(known)}", value)
        for key, value, what, known in settings
        if value is not None and value not in known
    ]


def _listed(numbers: Sequence[int]) -> str:
    """Ascending numbers with ranges, as 0 to 3, 8."""
    ranges = []
    for _, group in itertools.groupby(
        enumerate(numbers), lambda pair: pair[1] - pair[0]
    ):
        run = [number for _, number in group]
        ranges.append(
            f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
        )
    return ", ".join(ranges)


def make_native_atari(
    keys: AtariKeys, entry: GymnasiumSpec, num_envs: int, seed: int
) -> "AtariEnvs":
    """`num_envs` games in ale-py's own threads."""
    arguments = keys.model_dump(exclude={*autoreset.ONLY_SINGLE, "reward_clipping"})
    made = foreign.make_in_mode(
        foreign.vector_creator(entry),
        game=entry.kwargs["game"],
        num_envs=num_envs,
        # scores need raw rewards; the learner's are clipped later
        reward_clipping=False,
        **arguments,
    )
    return AtariEnvs(made.env, seed)


class AtariEnvs(autoreset.SameStepEnvs):
    """ale-py's vector environment, whose games continue after a lost life. ale-py
    reports a lost life like the end of a game. At the end it reports the lives of the
    next game. Only a new game changes the number of frames before the game."""

    def __init__(self, env: foreign.GymnasiumVectorEnv, seed: int) -> None:
        super().__init__(env, seed)
        self._began: IntArray = np.zeros(self.num_envs, np.int64)

    @override
    def _seeds(self, seed: int | Sequence[int]) -> IntArray:
        return np.array(env_seeds(seed, self.num_envs))

    @override
    def reset(self) -> Array:
        obs, info = self.env.reset(seed=self._seed)
        self._seed = None
        self._began = _frames_before(info)
        return np.asarray(obs)

    @override
    def step(self, action: Array) -> RawStep:
        check_actions("native", action, self.action_space)  # ale-py would wait for ever
        obs, reward, terminated, truncated, info = self.env.step(action)
        reward = reward.astype(np.float64)
        self._steps += 1
        done = terminated | truncated
        step = RawStep(obs, reward, terminated, truncated)
        if not np.count_nonzero(done):
            return step
        began = _frames_before(info)
        done_index = done.nonzero()[0]
        over = (began != self._began)[done_index]
        self._began = began
        # info["final_obs"] is valid only in the rows of games that are over.
        final_obs = obs[done_index]
        final_obs[over] = info["final_obs"][done_index[over]]
        return step._replace(
            done_index=done_index,
            final_obs=final_obs,
            over=over,
        )


def _frames_before(info: Mapping[str, Any]) -> IntArray:
    """(N,) the frames before the start of each game."""
    return info["frame_number"] - info["episode_frame_number"]
