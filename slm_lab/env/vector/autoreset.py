"""Gymnasium's vector environments, which have the autoreset modes of `env/foreign.py`.

The lab uses SAME_STEP or DISABLED: NEXT_STEP adds a step to every episode that no agent
took. A vector environment with NEXT_STEP alone is made once per copy, and each copy is
reset alone. The native CartPole is one of these, so the lab has its own class."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, final

import numpy as np
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.vector import AutoresetMode
from typing_extensions import override

from slm_lab.core.errors import LabError, undone_on_failure
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, BoolArray, IntArray, StateDict
from slm_lab.env.convert.batch import BatchView, host_array, host_arrays, rows_at
from slm_lab.env.convert.nested import COMPOSITE
from slm_lab.env.failure import close_all
from slm_lab.env.foreign import (
    FINAL_INFO,
    OWN_OF_NATIVE,
    Creator,
    ForeignStep,
    GymnasiumVectorEnv,
    InMode,
    final_info,
    final_rows,
    make_in_mode,
    own_mode,
    takes,
    takes_mode,
    vector_creator,
    vector_step,
)
from slm_lab.env.interface import Env, check_spaces
from slm_lab.env.lookup import ATARI_VECTOR, step_limit
from slm_lab.env.vector.cartpole import CartPoleEnvs, OneCartPole
from slm_lab.env.vector.raw import (
    CONTINUES,
    NUMBERS,
    CopyMarks,
    RawEnvs,
    RawStep,
    env_seeds,
    seeds_after,
)
from slm_lab.env.vector.workers import Workers
from slm_lab.spec.schema.env import EnvSpec

Vectorisation: TypeAlias = Literal["native", "sync", "async"]

LIMIT = "max_episode_steps"
"""The argument of native versions for the step limit."""

NATIVE_CARTPOLE = "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"
"""The vector entry point that the lab's class replaces."""

ONLY_SINGLE = frozenset({"render_mode", "mode", "difficulty"})
"""Keys that no native version has: rendering, and the variants of an Atari game."""

KNOWN_VERSIONS = (NATIVE_CARTPOLE, ATARI_VECTOR)
"""The vector entry points that the lab knows. They have step limits of their own, and
never tell which actions are allowed."""

MASK_IGNORED = (
    'is in autoreset mode DISABLED, and its reset with options {"reset_mask": …} '
    "changed environments outside of the mask; reset only those in it, and return the "
    "observations of all"
)


def choose_mode(spec: EnvSpec, entry: GymnasiumSpec) -> Vectorisation:
    """The vectorisation of `spec`: as requested, else native if possible, else
    sync."""
    if spec.vectorization_mode is not None:
        return spec.vectorization_mode
    only_single = ONLY_SINGLE | OWN_OF_NATIVE
    may_be_native = spec.single_only is None and only_single.isdisjoint(spec.arguments)
    if may_be_native and native_fault(spec, entry) is None:
        return "native"
    return "sync"


def native_fault(spec: EnvSpec, entry: GymnasiumSpec) -> str | None:
    """Why `spec` cannot use the native vector environment of `entry`; None if it
    can."""
    if entry.vector_entry_point is None:
        return "it has no native vector version"
    if entry.additional_wrappers:
        return (
            "it is registered with wrappers, which its native vector version would "
            "leave out"
        )
    is_known = entry.vector_entry_point in KNOWN_VERSIONS
    if is_known and spec.action_mask is not None:
        return "its native vector version has no masks of actions"
    if entry.vector_entry_point == NATIVE_CARTPOLE:
        return None
    try:
        creator = vector_creator(entry)
    except ImportError as error:
        return f"its native vector version does not import ({error})"
    fault = _mode_fault(creator)
    limit = step_limit(spec, entry)
    has_limit = limit is not None and not is_known
    if fault is None and has_limit and not takes(creator, LIMIT):
        fault = (
            f"its native vector version takes no {LIMIT}, which limits an episode to "
            f"{limit} steps"
        )
    return fault


def one_by_one_reason(spec: EnvSpec, entry: GymnasiumSpec) -> str | None:
    """Why copies are stepped one by one though another package has a native vector
    version. None if they are not, or if a key of `spec` asks for it."""
    if entry.vector_entry_point in (None, *KNOWN_VERSIONS):
        return None
    is_asked_for = spec.vectorization_mode is not None or spec.single_only is not None
    if is_asked_for or spec.num_envs == 1:
        return None
    return native_fault(spec, entry)


def _mode_fault(creator: Creator) -> str | None:
    """Why the modes of a native version do not fit; None if one does."""
    if takes_mode(creator):
        return None
    mode = own_mode(creator)
    if mode in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
        return None
    if mode is not None:
        return (
            f"its native vector version only resets in mode {mode.name}; the lab "
            "needs SAME_STEP or DISABLED"
        )
    if not isinstance(creator, type):
        return (
            "its native vector version is made by a function without an argument "
            "autoreset_mode, so its mode is not known"
        )
    return (
        "its native vector version takes no argument autoreset_mode, and its metadata "
        "names no AutoresetMode"
    )


def make_native(spec: EnvSpec, entry: GymnasiumSpec, seed: int) -> RawEnvs:
    """The native vector version of `entry`, for which `native_fault` must be None."""
    if entry.vector_entry_point == NATIVE_CARTPOLE:
        arguments = {**entry.kwargs, **spec.arguments}
        limit = step_limit(spec, entry)
        if spec.num_envs == 1:
            return OneCartPole(seed, limit, **arguments)
        return CartPoleEnvs(spec.num_envs, seed, limit, **arguments)
    made = make_native_in_mode(spec, entry)
    with undone_on_failure(made.env.close):
        observations = made.env.single_observation_space
        actions = made.env.single_action_space
        check_spaces(entry.id, observations, actions)
        view: BatchView | None = None
        if isinstance(observations, COMPOSITE) or spec.action_mask is not None:
            view = BatchView.of(spec, observations, actions)
        if made.mode is AutoresetMode.DISABLED:
            return MaskedResetEnvs(made.env, seed, view)
        return SameStepEnvs(made.env, seed, view)


def make_native_in_mode(spec: EnvSpec, entry: GymnasiumSpec) -> InMode:
    """The native vector version of `entry`, for which `native_fault` must be None."""
    creator = vector_creator(entry)
    arguments = {**entry.kwargs, **spec.arguments}
    limit = step_limit(spec, entry)
    if limit is not None:
        arguments[LIMIT] = limit
    return make_in_mode(creator, num_envs=spec.num_envs, **arguments)


def make_async(
    makers: Sequence[Callable[[], Env]],
    seed: int,
    process_seed: int,
    marks: CopyMarks | None,
) -> RawEnvs:
    """The environments of these makers, each in its own process, see `Workers`."""
    workers = Workers(makers, process_seed, marks)
    with undone_on_failure(workers.close):
        return AsyncEnvs(workers, seed)


class SameStepEnvs(SavedFields, RawEnvs):
    """A Gymnasium vector environment in SAME_STEP mode. One that is written in C
    exposes no state; its steps are counted. A `view` makes rows of observations with
    parts or masks."""

    saved: ClassVar = {"steps": "_steps", "root_seed": "_root_seed"}
    optional: ClassVar = ("root_seed",)  # without it this run's seed counts

    def __init__(
        self, env: GymnasiumVectorEnv, seed: int, view: BatchView | None = None
    ) -> None:
        self.num_envs = env.num_envs
        self.observation_space = env.single_observation_space
        if view is not None:
            self.observation_space = view.space
        self._view = view
        self.action_space = env.single_action_space
        self.exact_state = False
        self.env = env
        self._root_seed = seed
        self._steps = 0
        self._seed = self._seeds(seed)  # None after its use

    def _seeds(self, seed: int | Sequence[int]) -> Any:
        """The argument of the first `reset`: one seed, or in subclasses one per
        environment."""
        return env_seeds(seed, 1)[0]

    @override
    def reset(self) -> Array:
        obs, info = self.env.reset(seed=self._seed)
        self._seed = None
        return self._seen(obs, info, "reset")

    def _seen(
        self,
        obs: Any,
        info: Mapping[str, Any],
        method: str,
        index: IntArray | None = None,
        is_last: bool | BoolArray = False,
    ) -> Array:
        """The observations of all copies, or of the copies in `index`, as new arrays in
        `observation_space`. For `is_last` see `BatchView.observe`."""
        if index is not None:
            obs = rows_at(obs, index)
        if self._view is None:
            return host_array(obs).copy()
        masked_info: Mapping[str, Any] = {}
        if self._view.reads_info:
            masked_info = info if index is None else rows_at(info, index)
        return self._view.observe(
            host_arrays(obs),
            masked_info,
            method,
            count=self.num_envs if index is None else len(index),
            is_last=is_last,
        )

    def _last_seen(self, info: Mapping[str, Any], done_index: IntArray) -> Array:
        """(K, ...) the last observations of the done rows."""
        final_obs = final_rows(self.env, info, done_index)
        if self._view is None:
            rows: Array = final_obs
            return rows
        last_info: Mapping[str, Any] = {}
        if self._view.reads_info:
            last_info = final_info(self.env, info, done_index)
        count = len(done_index)
        return self._view.observe(final_obs, last_info, "step", count, is_last=True)

    def _with_terminal(
        self, terminated: BoolArray, done_index: IntArray, final_obs: Array
    ) -> BoolArray:
        """`terminated` with the done rows in whose last states nothing is allowed."""
        if self._view is None or self._view.masks is None:
            return terminated
        terminated = terminated.copy()
        terminated[done_index] |= self._view.allows_nothing(final_obs)
        return terminated

    def _stepped(self, action: Any) -> ForeignStep:
        """A step, with rewards (N,) as float64 and ends (N,) as bool."""
        step = vector_step(self.env, action)
        return step._replace(
            reward=step.reward.astype(np.float64, copy=False),
            terminated=step.terminated.astype(np.bool_, copy=False),
            truncated=step.truncated.astype(np.bool_, copy=False),
        )

    @override
    def step(self, action: Any) -> RawStep:
        observed, reward, terminated, truncated, info = self._stepped(action)
        obs = self._seen(observed, info, "step")
        self._steps += 1
        done = terminated | truncated
        step = RawStep(obs, reward, terminated, truncated)
        if not np.count_nonzero(done):
            return step
        done_index = done.nonzero()[0]
        final_obs = self._last_seen(info, done_index)
        over = None
        if CONTINUES in info:
            over = ~info[CONTINUES][done_index]
        numbers = info.get(FINAL_INFO, {}).get(NUMBERS)
        numbers = None if numbers is None else numbers[done_index]
        return step._replace(
            terminated=self._with_terminal(terminated, done_index, final_obs),
            done_index=done_index,
            final_obs=final_obs,
            over=over,
            info=numbers,
        )

    @override
    def after_load(self) -> None:
        # new episodes start with seeds that were not used before
        self._seed = self._seeds([self._root_seed, self._steps])

    @override
    def close(self) -> None:
        close_all([self.env.close], type(self.env).__name__)


@final
class MaskedResetEnvs(SameStepEnvs):
    """A Gymnasium vector environment in DISABLED mode, which resets the rows in the
    option "reset_mask"."""

    @override
    def step(self, action: Any) -> RawStep:
        observed, reward, terminated, truncated, info = self._stepped(action)
        self._steps += 1
        done = terminated | truncated
        obs = self._seen(observed, info, "step", is_last=done)
        step = RawStep(obs, reward, terminated, truncated)
        if not np.count_nonzero(done):
            return step
        done_index = done.nonzero()[0]
        others = (~done).nonzero()[0]
        final_obs = obs[done_index]
        begun, first_info = self.env.reset(options={"reset_mask": done.copy()})
        if len(others) > 0:
            now = self._seen(begun, info, "step", index=others)
            if not np.array_equal(now, obs[others], equal_nan=True):
                raise LabError(f"{type(self.env).__name__} {MASK_IGNORED}")
        obs[done_index] = self._seen(begun, first_info, "reset", index=done_index)
        return step._replace(
            terminated=self._with_terminal(terminated, done_index, final_obs),
            done_index=done_index,
            final_obs=final_obs,
        )


class AsyncEnvs(SameStepEnvs):
    """Environments in worker processes, which return their state."""

    def __init__(self, workers: Workers, seed: int) -> None:
        super().__init__(workers, seed)
        self._workers = workers
        self.exact_state = all(workers.call("lab_has_exact_state"))

    @override
    def _seeds(self, seed: int | Sequence[int]) -> list[int]:
        return env_seeds(seed, self.num_envs)

    @override
    def set_frame(self, frame: int) -> None:
        self._workers.clock.value = frame

    @override
    def state_dict(self) -> StateDict:
        states: Sequence[StateDict] = [{"rng": None, "episode": None}] * self.num_envs
        if not self._workers.closed:  # by the failure of one
            states = self._workers.call("lab_save_state")
        return {"envs": list(states), "steps": self._steps}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        restored = self._workers.call("lab_load_state", state["envs"])
        self._steps = state.get("steps", 0)
        self._seed = seeds_after(restored, [self._root_seed, self._steps])
