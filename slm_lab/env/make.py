"""Builds the environments that a spec describes."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.error import DependencyNotInstalled

from slm_lab.core.errors import LabError, MissingExtraError, SpecError
from slm_lab.env.action import ActionConverter
from slm_lab.env.autoreset import NATIVE_PARTS, choose_mode, make_async, make_native
from slm_lab.env.check import check_env, native_refused
from slm_lab.env.flatten import COMPOSITE, flatten_parts
from slm_lab.env.lookup import find_env, known_warnings_ignored
from slm_lab.env.normalize import ObservationNormalizer, RewardNormalizer, RunningStatistics
from slm_lab.env.observation import ObservationConverter
from slm_lab.env.pipeline import PipelineEnv
from slm_lab.env.raw import RawEnvs, env_seeds
from slm_lab.env.reward import RewardConverter
from slm_lab.env.sync import SyncEnvs
from slm_lab.env.vector_env import VectorEnv
from slm_lab.spec.schema.env import EnvSpec

ActionKind: TypeAlias = Literal["discrete", "box", "multi_discrete", "multi_binary"]

ACTION_KINDS: dict[type[gymnasium.Space[Any]], ActionKind] = {
    spaces.Discrete: "discrete",
    spaces.Box: "box",
    spaces.MultiDiscrete: "multi_discrete",
    spaces.MultiBinary: "multi_binary",
}


def make_env(spec: EnvSpec, seed: int, training: bool = True, gamma: float = 0.99) -> VectorEnv:
    """The `spec.num_envs` environments of `spec`, seeded from `seed`, not reset yet.

    With `training` False the normalisers' statistics are frozen. `gamma` is the discount per
    step that reward normalisation measures returns with. Raises SpecError for what the
    environment does not know or the lab does not support, MissingExtraError for a simulator that
    is not installed.
    """
    entry = find_env(spec.name)
    problems = check_env(spec)
    if problems:
        raise SpecError("env", problems)
    raw = _make_raw(spec, entry, seed)
    try:
        return _wrap(spec, raw, training, gamma)
    except BaseException:
        raw.close()
        raise


class Actions(NamedTuple):
    """What a spec check has to know about the actions of an environment."""

    kind: ActionKind
    has_low: bool
    """Whether every component has a lower bound."""
    has_high: bool


def describe_actions(spec: EnvSpec) -> Actions:
    """What kind of actions the environment takes, by constructing one. Raises as `make_env`."""
    env = make_env(spec.model_copy(update={"num_envs": 1, "vectorization_mode": "sync"}), seed=0)
    try:
        space = env.action_space
        bounds = (space.low, space.high) if isinstance(space, spaces.Box) else (0, 0)
        low, high = (bool(np.isfinite(bound).all()) for bound in bounds)
        return Actions(ACTION_KINDS[type(space)], low, high)
    finally:
        env.close()


def _make_raw(spec: EnvSpec, entry: GymnasiumSpec, seed: int) -> RawEnvs:
    try:
        return _vectorise(spec, entry, seed)
    except DependencyNotInstalled as error:
        raise MissingExtraError(f"{entry.id} cannot be made: {error}") from error
    except LabError:
        raise
    except Exception as error:
        given = f" with {dict(spec.kwargs)}" if spec.kwargs else ""
        message = f"{entry.id} cannot be made{given}: {type(error).__name__}: {error}"
        raise LabError(message) from error


def _vectorise(spec: EnvSpec, entry: GymnasiumSpec, seed: int) -> RawEnvs:
    mode = choose_mode(spec.vectorization_mode, spec.kwargs, entry)
    if mode == "native":
        native = make_native(entry, spec.num_envs, seed, spec.max_t, spec.kwargs)
        if not isinstance(native.observation_space, COMPOSITE):
            return native
        native.close()
        if spec.vectorization_mode == "native":
            raise SpecError("env", [native_refused(NATIVE_PARTS)])
    make_one = functools.partial(make_single, spec.name, entry, spec.max_t, dict(spec.kwargs))
    if mode == "async":
        return make_async(make_one, spec.num_envs, seed)
    return SyncEnvs([make_one() for _ in range(spec.num_envs)], env_seeds(seed, spec.num_envs))


def make_single(
    name: str, entry: GymnasiumSpec, max_t: int | None, kwargs: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """One environment with its time limit, its observation in one piece.

    Gymnasium's runtime checks are left out (speed). Raises SpecError as `flatten_parts`.
    """
    entry = dataclasses.replace(entry, order_enforce=False, disable_env_checker=True)
    with known_warnings_ignored():
        env = gymnasium.make(entry, max_episode_steps=max_t, **kwargs)
    try:
        return flatten_parts(env, name)
    except SpecError:
        env.close()
        raise


def _wrap(spec: EnvSpec, raw: RawEnvs, training: bool, gamma: float) -> VectorEnv:
    observation = ObservationConverter(raw.observation_space, spec.name)
    # Images are scaled by the net, not normalised.
    normalizes_obs = spec.normalize_obs and observation.space.dtype != np.uint8
    obs_size = math.prod(observation.space.shape or ()) if normalizes_obs else 0
    obs_length = RunningStatistics.length(obs_size) if normalizes_obs else 0
    reward_length = RunningStatistics.length(1) if spec.normalize_reward else 0
    statistics = np.zeros(obs_length + reward_length)
    blocks = (slice(0, obs_length), slice(obs_length, obs_length + reward_length))
    obs_normalizer = reward_normalizer = None
    if normalizes_obs:
        obs_statistics = RunningStatistics(statistics[:obs_length], obs_size)
        obs_normalizer = ObservationNormalizer(obs_statistics, spec.clip_obs)
    if spec.normalize_reward:
        reward_statistics = RunningStatistics(statistics[obs_length:], 1)
        reward_normalizer = RewardNormalizer(reward_statistics, gamma, raw.num_envs)
    return PipelineEnv(
        raw,
        observation=observation,
        action=ActionConverter(raw.action_space, spec.name),
        reward=RewardConverter(spec.reward_scale, reward_normalizer, spec.clip_reward, training),
        normalizer=obs_normalizer,
        statistics=statistics,
        moments=tuple(block for block in blocks if block.start < block.stop),
        training=training,
    )
