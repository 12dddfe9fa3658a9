"""A parallel environment whose agents come and go at random.

No two copies have the same number of agents for long, unlike those of `tests.team`."""

from typing import Any

import numpy as np
from gymnasium import spaces

LENGTH = 15


class RestlessTeam:
    """An observation is the agent's goal (0 or 1), its number, the number of its
    episode, and its steps in it. Reward 1 where the action is the goal."""

    def __init__(self, size: int = 3, render_mode: str | None = None) -> None:
        self.possible_agents = [f"agent_{k}" for k in range(size)]
        self.agents: list[str] = []
        self.render_mode = render_mode
        self.ended: dict[str, int] = dict.fromkeys(self.possible_agents, 0)
        self.t = 0

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(0.0, 1e6, (4,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.rng = np.random.default_rng(seed)
        self.t = 0
        first, *others = self.possible_agents
        self.agents = [first, *(a for a in others if self.rng.random() < 0.6)]
        self.steps = dict.fromkeys(self.agents, 0)
        return self._seen(self.agents), {}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        assert set(actions) == set(self.agents)
        acting = list(self.agents)
        rewards = {a: float(int(actions[a]) == self.goals[a]) for a in acting}
        self.t += 1
        is_cut = self.t == LENGTH
        terminated = {a: bool(self.rng.random() < 0.06) for a in acting}
        truncated = {a: is_cut or bool(self.rng.random() < 0.06) for a in acting}
        silent = [a for a in acting if self.rng.random() < 0.03]
        for a in acting:
            self.steps[a] += 1
        obs = self._seen(acting)
        left = {a for a in acting if terminated[a] or truncated[a]} | set(silent)
        for a in left:
            self.ended[a] += 1
        joining = [
            a
            for a in self.possible_agents
            if not is_cut and a not in acting and self.rng.random() < 0.3
        ]
        self.steps |= dict.fromkeys(joining, 0)
        staying = {*acting, *joining} - left
        self.agents = [a for a in self.possible_agents if a in staying]
        return obs | self._seen(joining), rewards, terminated, truncated, {}

    def close(self) -> None:
        self.agents = []

    def _seen(self, agents: list[str]) -> dict[str, Any]:
        self.goals = getattr(self, "goals", {}) | {
            a: int(self.rng.integers(2)) for a in agents
        }
        return {
            a: np.array(
                [
                    self.goals[a],
                    self.possible_agents.index(a),
                    self.ended[a],
                    self.steps[a],
                ],
                np.float32,
            )
            for a in agents
        }


parallel_env = RestlessTeam
