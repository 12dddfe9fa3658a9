"""Builds the environments that a spec describes."""

import dataclasses
import importlib
import logging
import math
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector.utils import CloudpickleWrapper

from slm_lab.core.actions import MixedActions
from slm_lab.core.errors import (
    LabError,
    MissingExtraError,
    SpecError,
    undone_on_failure,
)
from slm_lab.core.observation import ObservationLayout
from slm_lab.core.process import printing_to, text_log
from slm_lab.core.registry import import_failure
from slm_lab.core.schedule import Schedule
from slm_lab.core.types import IntArray
from slm_lab.env.changing import ArgumentSchedule, ChangingEnv, Numbers
from slm_lab.env.check import argument_schedules, check_env
from slm_lab.env.convert.action import action_converter
from slm_lab.env.convert.mask import ActionMasks, MaskError, MaskReader
from slm_lab.env.convert.normalize import ObservationNormalizer, RunningStatistics
from slm_lab.env.convert.observation import FrameJoiner, ObservationConverter
from slm_lab.env.convert.parts import RowSpace, join_parts
from slm_lab.env.convert.reward import RewardConverter
from slm_lab.env.extras import known_warnings_ignored, require
from slm_lab.env.failure import as_exception, close_all
from slm_lab.env.interface import AnySpace, Env, check_spaces, name_of
from slm_lab.env.lookup import find_env, step_limit
from slm_lab.env.pettingzoo import OneAgent
from slm_lab.env.pool_names import is_only_in_pool, is_pooled
from slm_lab.env.simulators.atari import (
    AtariKeys,
    atari_keys,
    is_atari,
    make_native_atari,
)
from slm_lab.env.simulators.batched import is_batched
from slm_lab.env.simulators.envpool import (
    THREAD_KEYS,
    make_pool,
    make_pooled,
    make_pooled_game,
)
from slm_lab.env.simulators.film import ATARI_FPS, Film, Filmed, fix_of_mujoco
from slm_lab.env.vector.agents import AgentRows
from slm_lab.env.vector.autoreset import (
    choose_mode,
    make_async,
    make_native,
)
from slm_lab.env.vector.in_process import SyncEnvs
from slm_lab.env.vector.raw import (
    RESETTING,
    CopyMarks,
    LastInfo,
    RawEnvs,
    ResetOptions,
    TimeLimit,
    env_seeds,
    marks_in,
)
from slm_lab.env.vector_env import Conversions, HostEnv, VectorEnv
from slm_lab.env.wrappers import wrap
from slm_lab.spec.checks.algorithm import ActionKind
from slm_lab.spec.checks.parts import WHOLE, named_parts, unknown_part
from slm_lab.spec.schema.env import EnvSpec

logger = logging.getLogger(__name__)

OLD_MODEL = "'settotalmass' is deprecated"
"""A warning about HalfCheetah's model, which users cannot fix."""

AFTER_SCHEDULES = sys.maxsize
"""A frame after the end of every schedule."""

MadeT = TypeVar("MadeT")

ACTION_KINDS: dict[type[gymnasium.Space[Any]], ActionKind] = {
    spaces.Discrete: "discrete",
    spaces.Box: "box",
    spaces.MultiDiscrete: "multi_discrete",
    spaces.MultiBinary: "multi_binary",
    MixedActions: "mixed",
}


class EnvFactory(NamedTuple):
    """Makes single environments from a checked spec, in worker processes too. `entry`
    is the registered environment. `game` has the keys of an Atari game, and is None for
    any other environment. What a simulator prints at its import and construction goes
    to the log, if there is one."""

    spec: EnvSpec
    entry: GymnasiumSpec
    game: AtariKeys | None
    log: Path | None
    schedules: Mapping[str, ArgumentSchedule]

    @classmethod
    def of(cls, spec: EnvSpec) -> "EnvFactory":
        """The factory of a spec. Raises SpecError if the environment does not accept
        it."""
        log = text_log()
        with printing_to(log):
            entry = find_env(spec)
            problems = check_env(spec)
        if problems:
            raise SpecError("env", problems)
        game = None
        if is_atari(entry):
            game = atari_keys(spec, entry)
        return cls(
            spec=spec,
            entry=entry,
            game=game,
            log=log,
            schedules=argument_schedules(spec, entry),
        )

    def make_single(self, copy: int = 0) -> Env:
        """The environment with the number `copy` in its wrappers, its observations
        without parts, and `LastInfo` for `info_keys`. Raises LabError as `wrap`,
        SpecError as `join_parts`."""
        spec = self.spec
        with printing_to(self.log):
            env = (
                self._plain_game(self.game)
                if self.game is not None
                else self._plain(copy)
            )
        with undone_on_failure(partial(close_all, [env.close], spec.name)):
            _check_spaces_of(env)
            env = wrap(env, spec.wrapped_by)
            _check_spaces_of(env)
            env = ResetOptions(env, spec.reset_options) if spec.reset_options else env
            return self.with_parts(env)

    def with_parts(self, env: Env) -> Env:
        """`env` with mask and parts joined to one observation, and with the numbers of
        `info_keys`. Raises SpecError as `join_parts`."""
        spec = self.spec
        env = LastInfo(env, spec.info_keys) if spec.info_keys else env
        mask_sizes: tuple[int, ...] = ()
        if spec.action_mask is not None:
            reader = MaskReader(
                spec.action_mask, env.observation_space, env.action_space, spec.name
            )
            env = ActionMasks(env, reader)
            mask_sizes = reader.sizes
        return join_parts(
            env=env,
            env_name=spec.name,
            image_size=spec.image_downsize,
            channels=spec.image_channels,
            mask_sizes=mask_sizes,
        )

    def make_team(self, copy: int) -> Env:
        """The parallel environment with the number `copy`, whose agents act
        together."""
        with printing_to(self.log):
            agent = self._bare(copy, numbers={}).unwrapped
        assert isinstance(agent, OneAgent)
        team = agent.team
        team.limit = step_limit(self.spec, self.entry)
        if self.spec.reset_options:
            return ResetOptions(team, self.spec.reset_options)
        return team

    def try_last_numbers(self) -> None:
        """Makes the environment with the last values of its changing arguments. Raises
        LabError if these cannot be."""
        if self.spec.changing_argument is None:
            return
        with printing_to(self.log):
            env = self._changing(copy=0)
            with closing(env):
                env.change(env.numbers_at(AFTER_SCHEDULES))

    def _plain(self, copy: int) -> Env:
        """One environment with its time limit."""
        env: Env
        if self.spec.changing_argument is None:
            numbers = {key: schedule.at(0) for key, schedule in self.schedules.items()}
            env = self._bare(copy, numbers)
        else:
            env = self._changing(copy)
        limit = step_limit(self.spec, self.entry)
        if limit is None:
            return env
        return TimeLimit(env, limit)

    def _changing(self, copy: int) -> ChangingEnv:
        return ChangingEnv(
            self.entry.id, partial(self._bare_quietly, copy), self.schedules
        )

    def _bare_quietly(self, copy: int, numbers: Numbers) -> Env:
        with printing_to(self.log):
            return self._bare(copy, numbers)

    def _bare(self, copy: int, numbers: Numbers) -> Env:
        """One environment without Gymnasium's slow checks, with these values of its
        arguments with schedules."""
        of_a_pool = THREAD_KEYS
        if self.spec.backend != "envpool" or is_only_in_pool(self.entry):
            of_a_pool = frozenset()
        arguments = {**self.spec.arguments_of(copy), **numbers}
        kwargs = {
            key: value for key, value in arguments.items() if key not in of_a_pool
        }
        entry = _unchecked(self.entry)
        # They are passed as arguments of the entry, because `make` may have an argument
        # of the same name.
        entry = dataclasses.replace(entry, kwargs={**entry.kwargs, **kwargs})
        with known_warnings_ignored():
            log_mujoco_warnings(entry)
            return gymnasium.make(entry, max_episode_steps=-1)

    def _plain_game(self, game: AtariKeys) -> Env:
        """The game. Raises MissingExtraError without OpenCV, which resizes frames."""
        require("cv2", "atari")
        from slm_lab.env.simulators.atari_game import make_game

        return make_game(_unchecked(self.entry), game)


def make_env(
    spec: EnvSpec,
    seed: int,
    training: bool = True,
    gamma: Schedule | float = 0.99,
    film: Film | None = None,
    process_seed: int | None = None,
    marks: CopyMarks | None = None,
) -> VectorEnv:
    """The `spec.num_envs` environments of `spec`, seeded from `seed`, not reset yet.
    With `training` False the normalisers' statistics are frozen. Reward normalisation
    uses the discount `gamma` per step. A `film` records the images of a single
    environment in mode "sync". Processes of environments seed their global generators
    from `process_seed`, by default `seed`. Copies are RESETTING in `marks` while they
    are made or reset. Copies of a native vector environment are so only while they are
    made. Raises SpecError for unknown arguments and unsupported environments, and
    MissingExtraError for a simulator that is not installed."""
    factory = EnvFactory.of(spec)
    shown = marks_in(marks, spec.num_envs)
    shown[:] = RESETTING
    process_seed = seed if process_seed is None else process_seed
    if training:
        _constructed(factory, factory.try_last_numbers)
    raw = _constructed(
        factory,
        lambda: _vectorise(
            factory, seed, film=film, process_seed=process_seed, marks=marks
        ),
    )
    shown[:] = 0
    with undone_on_failure(raw.close):
        return HostEnv(raw, conversions_of(factory, raw, training, gamma), training)


def make_one(spec: EnvSpec) -> tuple[Env, Conversions]:
    """One environment as `spec` makes it, and what the spec puts between it and an
    agent. The statistics of the conversions stay constant. Raises as `make_env`."""
    single = {"num_envs": 1, "vectorization_mode": "sync", "info_keys": ()}
    factory = EnvFactory.of(spec.model_copy(update=single))
    env = _constructed(factory, factory.make_single)
    with undone_on_failure(partial(close_all, [env.close], spec.name)):
        return env, conversions_of(factory, env, training=False, gamma=1.0)


class Actions(NamedTuple):
    """The facts about actions that a spec check needs."""

    kind: ActionKind
    has_low: bool
    """Whether every component has a lower bound."""
    has_high: bool


class Spaces(NamedTuple):
    """The facts about an environment that a spec check needs."""

    actions: Actions
    layout: ObservationLayout
    """The agent's observations."""
    exact_state: bool
    """Whether a saved environment continues its episodes exactly."""
    num_agents: int = 1
    """The agents in one copy of the environment."""


def describe_spaces(spec: EnvSpec) -> Spaces:
    """The facts about the environment of a spec, which is constructed, and reset where
    a mask shall be read. Raises as `make_env`, and SpecError for a first mask that is
    missing or wrong."""
    mode = spec.vectorization_mode if _needs_its_mode(spec) else "sync"
    single = spec.model_copy(update={"num_envs": 1, "vectorization_mode": mode})
    with closing(make_env(single, seed=0)) as env:
        if spec.action_mask is not None:
            _read_first_mask(env)
        space = env.action_space
        has_low = has_high = True
        if isinstance(space, spaces.Box | MixedActions):
            has_low = bool(np.isfinite(space.low).all())
            has_high = bool(np.isfinite(space.high).all())
        actions = Actions(ACTION_KINDS[type(space)], has_low, has_high)
        return Spaces(
            actions=actions,
            layout=env.layout,
            exact_state=env.exact_state,
            num_agents=env.num_agents,
        )


def _read_first_mask(env: VectorEnv) -> None:
    """Resets an environment with masks. Raises SpecError for one that is no mask."""
    try:
        env.reset()
    except MaskError as error:
        message = error.fault
        raise SpecError.of("env", "env.action_mask", message, error.place) from None


def _needs_its_mode(spec: EnvSpec) -> bool:
    """Whether mode "sync" may need packages that the run does not need."""
    entry = find_env(spec)
    return is_pooled(spec) or (is_atari(entry) and choose_mode(spec, entry) == "native")


def _constructed(factory: EnvFactory, make: Callable[[], MadeT]) -> MadeT:
    """Returns the result of `make`. Raises MissingExtraError or LabError if it
    fails."""
    name = factory.entry.id
    arguments = factory.spec.arguments
    try:
        return make()
    except DependencyNotInstalled as missing:
        raise MissingExtraError(f"{name} cannot be made: {missing}") from missing
    except LabError:
        raise
    except BaseException as raised:
        error = as_exception(raised)
        if not isinstance(error, Exception):
            raise
        with_arguments = ""
        if arguments:
            with_arguments = f" with {dict(arguments)}"
        why = (
            f"{type(error).__name__}: {error}" if str(error) else import_failure(error)
        )
        why += fix_of_mujoco(error)
        raise LabError(f"{name} cannot be made{with_arguments}: {why}") from raised


def _vectorise(
    factory: EnvFactory,
    seed: int,
    film: Film | None,
    process_seed: int,
    marks: CopyMarks | None,
) -> RawEnvs:
    spec, entry, game, log, _ = factory
    if is_pooled(spec):
        assert film is None, "a film needs one environment"
        return _pooled(factory, seed)
    if is_batched(spec):
        assert film is None, "torch draws nothing"
        return _arrays_of_torch(factory, seed)
    if spec.has_agents:
        return _agents(factory, seed, film=film, marks=marks)
    mode = choose_mode(spec, entry)
    assert film is None or (mode, spec.num_envs) == ("sync", 1), (
        "a film needs one environment"
    )
    if mode == "native":
        with printing_to(log):
            return _native(factory, seed)
    if mode == "async":
        makers = [
            partial(
                _make_pickled,
                pickle.dumps(CloudpickleWrapper(partial(factory.make_single, copy))),
                log,
            )
            for copy in range(spec.num_envs)
        ]
        return make_async(makers, seed, process_seed, marks)
    envs = [factory.make_single(copy) for copy in range(spec.num_envs)]
    if film is not None:
        fps = None
        if game is not None:
            fps = ATARI_FPS / game.frameskip
        envs = [Filmed(envs[0], spec.name, film, fps)]
    return SyncEnvs(envs, env_seeds(seed, spec.num_envs), marks)


def _agents(
    factory: EnvFactory, seed: int, film: Film | None, marks: CopyMarks | None
) -> RawEnvs:
    spec = factory.spec
    teams: list[Env] = []
    with undone_on_failure(lambda: close_all([t.close for t in teams], spec.name)):
        teams += map(factory.make_team, range(spec.num_envs))
        if film is not None:
            teams[0] = Filmed(teams[0], spec.name, film)
        return AgentRows(
            copies=teams,
            seat=lambda seat: factory.with_parts(wrap(seat, spec.wrapped_by)),
            entry=factory.entry,
            seeds=env_seeds(seed, spec.num_envs),
            marks=marks,
        )


def _pooled(factory: EnvFactory, seed: int) -> RawEnvs:
    spec, entry, game, log, _ = factory
    if is_only_in_pool(entry):
        with printing_to(log):
            return make_pool(spec, entry, seed)
    if game is not None:
        return make_pooled_game(game, entry, spec.num_envs, seed)
    return make_pooled(spec, entry, factory.make_single, seed)


def _arrays_of_torch(factory: EnvFactory, seed: int) -> RawEnvs:
    from slm_lab.env.simulators.torch_envs import make_batched
    from slm_lab.env.vector.tensor_envs import ArraysOfTensors

    envs = make_batched(
        factory.spec, factory.entry, factory.make_single, seed, device="cpu"
    )
    return ArraysOfTensors(envs)


def _make_pickled(make_single: bytes, log: Path | None) -> Env:
    """One environment in a worker process. Loading its class imports the module of the
    class. What this import prints goes to the log as well."""
    with printing_to(log):
        make: Callable[[], Env] = pickle.loads(make_single)
    return make()


def _native(factory: EnvFactory, seed: int) -> RawEnvs:
    """The native vector environment."""
    spec, entry, game, *_ = factory
    if game is not None:
        return make_native_atari(game, entry, spec.num_envs, seed)
    return make_native(spec, entry, seed)


def _check_spaces_of(env: Env) -> None:
    found = (getattr(env, key, None) for key in ("observation_space", "action_space"))
    check_spaces(name_of(env), *found)


def _unchecked(entry: GymnasiumSpec) -> GymnasiumSpec:
    """The entry without Gymnasium's runtime checks."""
    return dataclasses.replace(entry, order_enforce=False, disable_env_checker=True)


def conversions_of(
    factory: EnvFactory, raw: RawEnvs | Env, training: bool, gamma: Schedule | float
) -> Conversions:
    """The converters that the spec puts between `raw` and an agent. Raises SpecError
    where the two do not fit."""
    spec = factory.spec
    game = factory.game
    # A game resizes and stacks its frames itself, a row has its images as they are.
    has_image_keys = game is None and not _has_images(raw.observation_space)
    observation = ObservationConverter(
        raw.observation_space,
        spec.name,
        spec.image_downsize if has_image_keys else None,
        spec.image_channels if has_image_keys else None,
    )
    space = observation.space
    layout = _layout_of(raw.observation_space, space)
    columns = _normalized_columns(layout, spec.normalize_obs)
    sizes = (len(columns), int(spec.normalize_reward))
    lengths = [RunningStatistics.length(size) if size else 0 for size in sizes]
    statistics = np.zeros(sum(lengths))
    of_obs, of_reward = (
        RunningStatistics(part, size) if size else None
        for size, part in zip(sizes, np.split(statistics, lengths[:1]), strict=True)
    )
    mask_sizes: tuple[int, ...] = ()
    if layout.mask is not None:
        mask_sizes = layout.part(layout.mask).sizes
    normalizer = None
    if of_obs is not None:
        is_partial = layout.is_bytes or of_obs.size < math.prod(layout.shape)
        normalizer = ObservationNormalizer(
            of_obs, spec.clip_obs, layout, columns if is_partial else None
        )
        space = normalizer.space(space)
    joiner = None
    if game is None and spec.frame_op is not None and spec.frame_op_len is not None:
        # where something reads their parts, rows stand one after another
        keeps_rows = layout.is_bytes or layout.mask is not None
        frame_op = "concat" if keeps_rows else spec.frame_op
        joiner = FrameJoiner(frame_op, spec.frame_op_len, space)
        space = joiner.space
    assert space.dtype is not None
    layout = layout.joined(
        _num_frames(spec, game, joiner), space.shape or (), space.dtype
    )
    blocks = (slice(0, lengths[0]), slice(lengths[0], len(statistics)))
    return Conversions(
        observation=observation,
        action=action_converter(raw.action_space, spec.name, mask_sizes),
        reward=RewardConverter(
            scale=spec.reward_scale,
            clip=spec.clip_reward,
            training=training,
            num_envs=raw.num_envs if isinstance(raw, RawEnvs) else 1,
            gamma=gamma,
            statistics=of_reward,
            sign_first=game is not None and bool(game.reward_clipping),
        ),
        normalizer=normalizer,
        joiner=joiner,
        layout=layout,
        statistics=statistics,
        moments=tuple(block for block in blocks if block.start < block.stop),
        num_info=len(spec.info_keys),
    )


def _has_images(space: AnySpace) -> bool:
    """Whether observations are rows with images in them."""
    return isinstance(space, RowSpace) and any(
        part.is_image for part in space.layout.parts
    )


def _normalized_columns(
    layout: ObservationLayout, normalize: bool | Sequence[str]
) -> IntArray:
    """The columns of a frame that are normalised; of an observation without parts all,
    or none. Raises SpecError if it has no such numbers."""
    if normalize is False:
        return np.arange(0)
    if normalize is not True:
        for index, name in enumerate(normalize):
            fault = _fault_of_part(layout, name)
            if fault is not None:
                raise SpecError.of("env", f"env.normalize_obs.{index}", fault, name)
    if layout.num_floats == 0:
        message = (
            "its observations are images, which agent.net.normalize scales; remove it"
        )
        if layout.parts:
            message = "no part of its observations has floats; remove it"
        if layout.parts and not any(part.is_image for part in layout.parts):
            message = "its observations are whole numbers, which stay as they are"
            message += "; remove it"
        raise SpecError.of("env", "env.normalize_obs", message, normalize)
    if not layout.parts:
        return np.arange(layout.num_floats)
    return layout.columns_of(
        part
        for part in layout.float_parts
        if normalize is True or part.name in normalize
    )


def _fault_of_part(layout: ObservationLayout, name: str) -> str | None:
    """Why the part of this name cannot be normalised; None if it can."""
    if name not in (layout.names or (WHOLE,)):
        return unknown_part(layout)
    part = named_parts(layout)[name]
    if part.sizes:
        return "is an index, which stays as it is; remove it"
    if layout.parts and part not in layout.float_parts:
        return f"has numbers of type {part.dtype}, which stay as they are; remove it"
    return None


def _layout_of(raw_space: AnySpace, space: AnySpace) -> ObservationLayout:
    """The layout of frames that are in `space` once they are converted."""
    if isinstance(raw_space, RowSpace):
        return raw_space.layout
    assert space.dtype is not None
    return ObservationLayout(space.shape or (), space.dtype)


def _num_frames(
    spec: EnvSpec, game: AtariKeys | None, joiner: FrameJoiner | None
) -> int:
    """The frames in an observation."""
    if joiner is not None:
        return joiner.length
    # A wrapper may change the frames of a game: its observations are stored whole.
    if game is None or spec.wrappers:
        return 1
    return game.stack_num


def log_mujoco_warnings(entry: GymnasiumSpec) -> None:
    """Sends MuJoCo's warnings to the log if `entry` uses it. MuJoCo itself prints them
    and writes MUJOCO_LOG.TXT in the working directory. An existing warning function of
    the process is kept."""
    if isinstance(entry.entry_point, str):
        importlib.import_module(entry.entry_point.partition(":")[0])
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log)


def _log(message: str) -> None:
    if OLD_MODEL not in message:
        logger.warning("MuJoCo: %s", message)
