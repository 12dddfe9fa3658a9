"""Atari games: their keys in a spec, and the native vector environment.

The preprocessing is that of Machado et al. (arXiv:1709.06009) and of DQN before it: grayscale,
84 × 84, every action taken for 4 frames, the last two of them pooled, 4 such frames stacked, up to
30 no-ops at the start of a game. `atari_game` does the same for single environments.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.vector import AutoresetMode
from pydantic import Field, ValidationError, model_validator
from typing_extensions import override

from slm_lab.core.errors import Problem, SpecError
from slm_lab.core.types import Array, IntArray
from slm_lab.env.vector.autoreset import (
    ONLY_SINGLE,
    GymnasiumVectorEnv,
    Mode,
    SameStepEnvs,
    vector_creator,
)
from slm_lab.env.vector.in_process import step_failure_note
from slm_lab.env.vector.raw import RawStep, env_seeds
from slm_lab.spec.problems import problems_of
from slm_lab.spec.schema.block import Block, error_line, spec_errors
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.fields import Int

ATARI_VECTOR = "ale_py.vector_env:AtariVectorEnv"
"""the vector entry point of the games that are preprocessed here"""

ATARI_SINGLE = "ale_py.env:AtariEnv"
"""the entry point of all games"""

NOT_OURS: Mapping[str, str] = {
    "game": "the game is named by env.name",
    "batch_size": "all num_envs games are stepped together",
    "autoreset_mode": "a game that is over begins anew in the same step, always",
    "max_episode_steps": "the lab's word for it is max_t",
    "obs_type": "a game is seen as images, with or without grayscale",
    "sound_obs": "a game is seen as images, with or without grayscale",
}
"""arguments of ale-py that a spec cannot set, and why"""

JOINED = 'frame_op "stack" with frame_op_len'
"""the words of every environment for what other libraries call a frame stack"""

USUAL_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("frame_stack", "num_stack", "stack_size"), f"stack_num (or {JOINED})"),
    "max_steps": "max_t",
    "frame_skip": "frameskip",
    "grayscale_obs": "grayscale",
    "screen_size": "image_downsize",
    "terminal_on_life_loss": "life_loss_info",
    "sticky_actions": "repeat_action_probability",
}
"""what other libraries call a key, and its word here"""

FULL_GAME = (
    "in ale-py it begins a new game with every lost life, so that nothing behind the first life is "
    "ever seen and a score is that of one life; use life_loss_info: true, with which a lost life "
    "terminates for the learner and the game goes on"
)


class AtariKeys(Block):
    """The keys of `env` that an Atari game has besides those of every environment.

    They are the arguments of ale-py's `AtariVectorEnv`, with the defaults of the v5 ids.
    """

    repeat_action_probability: float = Field(
        0.25, ge=0, le=1, description="sticky actions: how often the action before is taken again"
    )
    frameskip: Int = Field(4, ge=1, description="frames that an action is taken for")
    maxpool: bool = Field(True, description="the brighter of the last two frames, per pixel")
    grayscale: bool = Field(True, description="one channel per frame; false: three")
    img_height: Int = Field(84, ge=1, description="pixels")
    img_width: Int = Field(84, ge=1, description="pixels")
    stack_num: Int = Field(4, ge=1, description="frames of an observation, the newest last")
    noop_max: Int = Field(30, ge=0, description="a game begins with fewer no-ops than this")
    use_fire_reset: bool = Field(
        True, description="FIRE is pressed at the start, where there is one"
    )
    life_loss_info: bool = Field(
        False, description="a lost life terminates for the learner; scores count whole games"
    )
    episodic_life: bool = Field(False, description="refused: see life_loss_info")
    reward_clipping: bool | None = Field(
        None, description="the learner sees −1, 0, 1; null: unless clip_reward is given"
    )
    full_action_space: bool = Field(False, description="18 actions in every game")
    continuous: bool = Field(False, description="actions are radius, angle and fire")
    continuous_action_threshold: float = Field(
        0.5, ge=0, description="from where a continuous action counts as pressed"
    )
    max_num_frames_per_episode: Int = Field(
        108_000, ge=1, description="frames after which a game is truncated"
    )
    num_threads: Int = Field(0, ge=0, description="native: threads; 0: cores, at most num_envs")
    thread_affinity_offset: Int = Field(
        -1, ge=-1, description="native: the core of the first thread; −1: any"
    )
    mode: Int | None = Field(None, ge=0, description="sync, async, envpool: variant of the game")
    difficulty: Int | None = Field(
        None, ge=0, description="sync, async, envpool: difficulty of the game"
    )
    render_mode: Literal["human", "rgb_array"] | None = Field(
        None, description="sync: a window, or images of it"
    )

    @property
    def max_steps(self) -> int:
        """Steps after which a game is truncated."""
        return math.ceil(self.max_num_frames_per_episode / self.frameskip)

    @model_validator(mode="before")
    @classmethod
    def _not_ours(cls, data: Any) -> Any:
        lines = [
            error_line((key,), f"cannot be set: {NOT_OURS[key]}", value)
            for key, value in data.items()
            if key in NOT_OURS
        ]
        lines += [
            error_line((key,), f"unknown key; did you mean {USUAL_WORDS[key]}?", value)
            for key, value in data.items()
            if key in USUAL_WORDS
        ]
        if lines:
            raise spec_errors("AtariKeys", lines)
        return data

    @model_validator(mode="after")
    def _goes_on_after_a_life(self) -> Self:
        if self.episodic_life:
            raise spec_errors("AtariKeys", [error_line(("episodic_life",), FULL_GAME, True)])
        return self


def is_atari(entry: GymnasiumSpec) -> bool:
    """Whether `entry` is a game that is preprocessed here."""
    return entry.vector_entry_point == ATARI_VECTOR and not entry.additional_wrappers


def without_own_skip(entry: GymnasiumSpec) -> GymnasiumSpec:
    """A NoFrameskip id of ale-py, whose users have always skipped and pooled frames themselves, as
    the game that is preprocessed here. Its sticky actions (none in v4) stay."""
    if entry.entry_point != ATARI_SINGLE:
        return entry
    kwargs = {key: value for key, value in entry.kwargs.items() if key != "frameskip"}
    return dataclasses.replace(entry, kwargs=kwargs, vector_entry_point=ATARI_VECTOR)


def atari_keys(spec: EnvSpec, entry: GymnasiumSpec) -> AtariKeys:
    """What a game is run with: what the spec says, else what its id is registered with.

    The words of every environment count as well: max_t in steps, frame_op_len, image_downsize.
    Raises SpecError.
    """
    registered = {key: value for key, value in entry.kwargs.items() if key != "game"}
    try:
        keys = AtariKeys.model_validate({**registered, **spec.kwargs})
    except ValidationError as error:
        raise SpecError("env", problems_of(error, "env")) from None
    problems = list(_said_twice(spec, keys))
    if problems:
        raise SpecError("env", problems)
    said: dict[str, Any] = _in_words_of_ale(spec, keys)
    if keys.reward_clipping is None:
        said["reward_clipping"] = spec.clip_reward is None
    return keys.model_copy(update=said)


def _in_words_of_ale(spec: EnvSpec, keys: AtariKeys) -> dict[str, int]:
    """What the keys of every environment say, as keys of a game."""
    said = {}
    if spec.max_t is not None:
        said["max_num_frames_per_episode"] = spec.max_t * keys.frameskip
    if spec.frame_op is not None and spec.frame_op_len is not None:
        said["stack_num"] = spec.frame_op_len
    if spec.image_downsize is not None:
        said["img_width"], said["img_height"] = spec.image_downsize
    return said


def _said_twice(spec: EnvSpec, keys: AtariKeys) -> Iterator[Problem]:
    """Keys of a game that a key of every environment contradicts."""
    words = {
        "max_num_frames_per_episode": "max_t",
        "stack_num": "frame_op_len",
        "img_width": "image_downsize",
        "img_height": "image_downsize",
    }
    for key, value in _in_words_of_ale(spec, keys).items():
        if key in spec.kwargs and spec.kwargs[key] != value:
            message = f"env.{words[key]} makes it {value}; keep one of the two"
            yield Problem(f"env.{key}", message, spec.kwargs[key], has_value=True)


def atari_problems(spec: EnvSpec, entry: GymnasiumSpec, mode: Mode) -> list[Problem]:
    """What is wrong with the keys of a game; [] if nothing is."""
    try:
        keys = atari_keys(spec, entry)
    except SpecError as error:
        return list(error.problems)
    if mode != "native":
        return variant_problems(keys, entry)
    return [
        Problem(
            f"env.{key}",
            'the native vector version does not know it; use vectorization_mode "sync"',
            spec.kwargs[key],
            has_value=True,
        )
        for key in sorted(ONLY_SINGLE & spec.kwargs.keys())
    ]


def variant_problems(keys: AtariKeys, entry: GymnasiumSpec) -> list[Problem]:
    """A `mode` or `difficulty` that the game does not have. It is loaded to ask it, in 0.1 s."""
    if keys.mode is None and keys.difficulty is None:
        return []
    from ale_py import ALEInterface, LoggerMode, roms

    path = roms.get_rom_path(entry.kwargs["game"])
    if path is None:
        return []  # which making the game will tell
    ALEInterface.setLoggerMode(LoggerMode.Error)  # else it prints a banner
    game = ALEInterface()
    game.loadROM(path)
    asked = [
        ("mode", keys.mode, "modes", game.getAvailableModes()),
        ("difficulty", keys.difficulty, "difficulties", game.getAvailableDifficulties()),
    ]
    return [
        Problem(f"env.{key}", f"{entry.id} has the {what} {_listed(there)}", value, has_value=True)
        for key, value, what, there in asked
        if value is not None and value not in there
    ]


def _listed(numbers: Sequence[int]) -> str:
    """Ascending numbers, those that follow one another as a range: 0 to 3, 8."""
    ranges = []
    for _, group in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        ranges.append(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)))
    return ", ".join(ranges)


def make_native_atari(
    keys: AtariKeys, entry: GymnasiumSpec, num_envs: int, seed: int
) -> "AtariEnvs":
    """`num_envs` games in ale-py's own threads."""
    arguments = keys.model_dump(exclude={*ONLY_SINGLE, "reward_clipping"})
    env = vector_creator(entry)(
        game=entry.kwargs["game"],
        num_envs=num_envs,
        autoreset_mode=AutoresetMode.SAME_STEP,
        reward_clipping=False,  # it would lose the scores; the learner's rewards are clipped later
        **arguments,
    )
    return AtariEnvs(env, seed)


class AtariEnvs(SameStepEnvs):
    """ale-py's vector environment, whose games go on after a lost life.

    A lost life is reported like the end of a game, and the lives of a game that is over read as
    those of the next one. But the frames before the game began change only when one begins.
    """

    def __init__(self, env: GymnasiumVectorEnv, seed: int) -> None:
        super().__init__(env, seed)
        self._began: IntArray = np.zeros(self.num_envs, np.int64)
        space = self.action_space
        self._num_actions = int(space.n) if isinstance(space, spaces.Discrete) else None

    @override
    def _seeds(self, seed: int | Sequence[int]) -> IntArray:
        return np.array(env_seeds(seed, self.num_envs))

    @override
    def reset(self) -> Array:
        """Begins new games everywhere, the first time with the seeds."""
        obs, info = self.env.reset(seed=self._seed)
        self._seed = None
        self._began = _frames_before(info)
        return np.asarray(obs)

    @override
    def step(self, action: Array) -> RawStep:
        """One action for every game; the observations are new arrays each time.

        Raises IndexError for an action that there is not: ale-py would wait for ever.
        """
        if self._num_actions is not None:
            unknown = (action < 0) | (action >= self._num_actions)
            if np.count_nonzero(unknown):
                error = IndexError(f"there are {self._num_actions} actions")
                error.add_note(step_failure_note("native", int(unknown.argmax()), action))
                raise error
        obs, reward, terminated, truncated, info = self.env.step(action)
        reward = reward.astype(np.float64)
        self._steps += 1
        done = terminated | truncated
        if not np.count_nonzero(done):
            return RawStep(obs, reward, terminated, truncated, None, None)
        began = _frames_before(info)
        done_index = done.nonzero()[0]
        over = (began != self._began)[done_index]
        self._began = began
        # Only the rows of games that are over mean something in info["final_obs"].
        final_obs = obs[done_index]
        final_obs[over] = info["final_obs"][done_index[over]]
        return RawStep(obs, reward, terminated, truncated, done_index, final_obs, over)


def _frames_before(info: Mapping[str, Any]) -> IntArray:
    """(N,) how many frames had been played when each game began."""
    frames: IntArray = info["frame_number"] - info["episode_frame_number"]
    return frames
