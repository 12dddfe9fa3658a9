"""The agents of parallel environments as rows of one vector environment."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.utils.env_checker import data_equivalence
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, StateDict
from slm_lab.env.convert.nested import element
from slm_lab.env.failure import close_all
from slm_lab.env.interface import AnySpace, Env, checked_reset, checked_step, name_of
from slm_lab.env.pettingzoo import AgentStep, FirstObservation, Team, TeamStep
from slm_lab.env.state import has_exact_state, load_env_state, save_env_state
from slm_lab.env.vector.raw import (
    NUMBERS,
    RESETTING,
    CopyMarks,
    RawEnvs,
    RawStep,
    env_seeds,
    marks_in,
    reset_failure_note,
    seeds_after,
    step_failure_note,
)


@final
class Seat(gymnasium.Env[Any, Any]):
    """One agent as an environment that is not stepped by itself. It returns what a step
    of all agents has brought to this agent. So the wrappers of single environments
    serve agents, too, unless they change actions."""

    def __init__(
        self, observation_space: AnySpace, action_space: AnySpace, entry: GymnasiumSpec
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.spec = entry
        self.joined = FirstObservation(None, {})
        self.action: Any = None
        """What the agent did in the step."""
        self.result: AgentStep

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.joined

    @override
    def step(self, action: Any) -> AgentStep:
        if action is not self.action and not data_equivalence(action, self.action):
            raise LabError(
                "env.wrappers changes actions, and by then the agents of "
                f"{name_of(self)} have acted together; wrap the parallel environment"
            )
        return self.result


@final
class AgentRows(SavedFields, RawEnvs):
    """A row for each agent of each copy. The first copy's agents come first, in the
    order of its `possible_agents`, then the next copy's.

    An agent that leaves ends its episode. Its row is absent until it joins again, or
    until its copy begins a new episode. A copy does so when all agents have left. An
    absent row has an observation that some agent has seen, so that a policy can act on
    it. Nothing of it counts."""

    saved: ClassVar = {"steps": "_steps", "is_absent": "_is_absent"}

    def __init__(
        self,
        copies: Sequence[Env],
        seat: Callable[[Env], Env],
        entry: GymnasiumSpec,
        seeds: Sequence[int],
        marks: CopyMarks | None = None,
    ) -> None:
        """`copies` are `Team`s, maybe in wrappers. `seat` puts the wrappers of a single
        environment around a `Seat`. Copies are RESETTING in `marks` while they
        reset."""
        self._copies = list(copies)
        self._teams = [_team_of(copy) for copy in copies]
        first = self._teams[0]
        self._possible = first.possible_agents
        self.agents = tuple(map(str, self._possible))
        self._size = len(self.agents)
        self.num_envs = len(copies) * self._size
        self._seats = [
            Seat(first.observation_space, first.action_space, entry)
            for _ in range(self.num_envs)
        ]
        self._rows = [seat(row_seat) for row_seat in self._seats]
        self.observation_space = self._rows[0].observation_space
        self.action_space = self._rows[0].action_space
        self.exact_state = has_exact_state(copies[0]) and has_exact_state(self._rows[0])
        self._name = entry.id
        self._marks = marks_in(marks, len(copies))
        self._first_seeds = list(seeds)
        self._seeds: list[int | None] | None = [*seeds]
        self._row_seeds = self._seeds_of_rows(0)
        self._steps = 0
        self._is_absent = np.zeros(self.num_envs, np.bool_)
        shape = self.observation_space.shape or ()
        self._obs_shape = (self.num_envs, *shape)
        self._filler: Array | None = None
        """What some agent has seen."""

    def _seeds_of_rows(self, steps: int) -> dict[int, int]:
        """The seed of each row's first reset after so many steps. The row's wrappers
        may draw from the generator of the `Seat`."""
        return dict(enumerate(env_seeds([*self._first_seeds, steps], self.num_envs)))

    @override
    def reset(self) -> Array:
        seeds = self._seeds
        if seeds is None:
            seeds = [None] * len(self._copies)
        self._seeds = None
        obs = np.empty(self._obs_shape, self.observation_space.dtype)
        for copy, seed in enumerate(seeds):
            self._begin(copy, obs, seed)
        self._tell_absent()
        return obs

    @override
    def step(self, action: Any) -> RawStep:
        obs = np.empty(self._obs_shape, self.observation_space.dtype)
        reward = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, np.bool_)
        truncated = np.zeros(self.num_envs, np.bool_)
        numbers: dict[int, Array] = {}
        results: list[tuple[TeamStep, bool]] = []
        for copy in range(len(self._copies)):
            result, is_over = self._step_copy(copy, action)
            results.append((result, is_over))
            for row, agent in self._rows_of(copy):
                if agent not in result.acted:
                    obs[row] = self._filler
                    continue
                seat = self._seats[row]
                seat.action = element(self.action_space, action, row)
                seat.result = result.acted[agent]
                step = self._rows[row].step(seat.action)
                (
                    obs[row],
                    reward[row],
                    terminated[row],
                    truncated[row],
                    info,
                ) = checked_step(self._rows[row], step)
                if NUMBERS in info:
                    numbers[row] = info[NUMBERS]
        self._steps += 1
        done_index = (terminated | truncated).nonzero()[0]
        final_obs = obs[done_index]
        obs[done_index] = self._filler
        self._is_absent[done_index] = True
        self._begin_episodes(results, obs)
        self._tell_absent()
        raw = RawStep(obs, reward, terminated, truncated)
        if not len(done_index):
            return raw
        last_numbers = None
        if numbers:
            last_numbers = np.stack([numbers[row] for row in done_index.tolist()])
        return raw._replace(
            done_index=done_index,
            final_obs=final_obs,
            info=last_numbers,
        )

    def _step_copy(self, copy: int, action: Any) -> tuple[TeamStep, bool]:
        """The step of one copy, and whether all its agents have left."""
        actions = {
            agent: element(self.action_space, action, row)
            for row, agent in self._rows_of(copy)
            if not self._is_absent[row]
        }
        try:
            result, _, is_over, *_ = self._copies[copy].step(actions)
        except BaseException as error:
            named = {str(agent): value for agent, value in actions.items()}
            note = step_failure_note(self._name, copy, len(self._copies), named)
            error.add_note(note)
            raise
        return result, is_over

    def _begin_episodes(
        self, results: Sequence[tuple[TeamStep, bool]], obs: Array
    ) -> None:
        """Begins the episodes of agents that have joined, and all of copies that are
        over."""
        begun = np.zeros(self.num_envs, np.bool_)
        for copy, (result, is_over) in enumerate(results):
            if is_over:
                self._begin(copy, obs, None)
                begun[copy * self._size : (copy + 1) * self._size] = True
                continue
            for row, agent in self._rows_of(copy):
                if agent in result.joined:
                    self._seat(row, result.joined[agent], obs)
        self.begun = begun

    def _begin(self, copy: int, obs: Array, seed: int | None) -> None:
        """A new episode of one copy, whose observations it writes into `obs`."""
        self._marks[copy] = RESETTING
        try:
            joined, _ = self._copies[copy].reset(seed=seed)
        except BaseException as error:
            error.add_note(reset_failure_note(self._name, copy))
            raise
        self._marks[copy] = 0
        for row, agent in self._rows_of(copy):
            self._is_absent[row] = agent not in joined
            if agent in joined:
                self._seat(row, joined[agent], obs)
        for row, agent in self._rows_of(copy):
            if agent not in joined:
                obs[row] = self._filler

    def _seat(self, row: int, joined: FirstObservation, obs: Array) -> None:
        """Begins the episode of the agent in `row`."""
        self._seats[row].joined = joined
        env = self._rows[row]
        seed = self._row_seeds.pop(row, None)
        obs[row], _ = checked_reset(env, env.reset(seed=seed))
        self._is_absent[row] = False
        if self._filler is None:
            self._filler = obs[row].copy()

    def _rows_of(self, copy: int) -> Sequence[tuple[int, Any]]:
        """The row and the name of each agent of a copy."""
        return list(enumerate(self._possible, start=copy * self._size))

    def _tell_absent(self) -> None:
        self.absent = None
        if self._is_absent.any():
            self.absent = self._is_absent.copy()

    @override
    def state_dict(self) -> StateDict:
        return {
            **super().state_dict(),
            "envs": [save_env_state(copy) for copy in self._copies],
            "rows": [save_env_state(row) for row in self._rows],
            "row_seeds": [list(pair) for pair in self._row_seeds.items()],
            "filler": self._filler,
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        pairs = zip(self._copies, state["envs"], strict=True)
        restored = [load_env_state(copy, env_state) for copy, env_state in pairs]
        self._load_rows(state)
        self._filler = state["filler"]
        self._seeds = seeds_after(restored, [*self._first_seeds, self._steps])

    @override
    def after_load(self) -> None:
        self._tell_absent()

    def _load_rows(self, state: StateDict) -> None:
        """Restores the wrappers of the rows. Those whose generator is not restored are
        seeded anew."""
        seeds = self._seeds_of_rows(self._steps)
        saved = state.get("rows", ())  # older ones lack it
        for row, row_state in enumerate(saved):
            if load_env_state(self._rows[row], row_state):
                del seeds[row]
        seeds |= {int(row): int(seed) for row, seed in state.get("row_seeds", ())}
        self._row_seeds = seeds

    @override
    def close(self) -> None:
        close_all([copy.close for copy in self._copies], self._name)


def _team_of(env: Env) -> Team:
    team = env.unwrapped
    assert isinstance(team, Team)
    return team
