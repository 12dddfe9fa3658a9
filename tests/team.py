"""A parallel environment whose agents leave, join and come back.

It has the methods of PettingZoo's class, and needs no PettingZoo."""

from typing import Any

import numpy as np
from gymnasium import spaces

from slm_lab.env.state import ENV_ADAPTERS, StateAdapter

STAYS = ((0, 8, "terminated"),)
LEAVES = ((0, 3, "terminated"),)
COMES_BACK = ((0, 2, "truncated"), (4, 6, "terminated"))
JOINS = ((2, 8, "truncated"),)
PLANS = {"stays": STAYS, "leaves": LEAVES, "comes_back": COMES_BACK, "joins": JOINS}
"""The episodes of each agent: the steps in which it begins and ends, and how."""
LENGTH = 8


class Team:
    """Reward +1 where the action (0, 1) matches the sign that the agent sees, else −1.

    An observation is the sign, the time, the number of the agent, and the number of the
    episode of all. A mask in the info allows everything, or only the action that
    matches."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10, "name": "team"}

    def __init__(self, size=4, masked=False, same=True, render_mode=None) -> None:
        names = list(PLANS)
        self.possible_agents = [
            names[k] if k < len(names) else f"stays_{k}" for k in range(size)
        ]
        self.agents: list[str] = []
        self.render_mode = render_mode
        self.masked = masked
        self.same = same
        self.seeds: list[int | None] = []
        self.episode = -1.0
        self.t = 0
        self.signs = np.ones(size)

    def observation_space(self, agent: str) -> spaces.Box:
        size = 4 if self.same or agent == "stays" else 5
        return spaces.Box(-1.0, 1e6, (size,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seeds.append(seed)
        self.rng = np.random.default_rng(seed)
        self.episode += 1
        self.t = 0
        self.agents = [a for a in self.possible_agents if self._plan(a, 0)]
        self._draw()
        return self._seen(self.agents), self._infos(self.agents)

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        assert set(actions) == set(self.agents), (sorted(actions), self.agents)
        acting = list(self.agents)
        right = {a: int(actions[a]) == int(self._sign(a) > 0) for a in acting}
        if self.masked:
            assert all(right[a] or not self._only_one(a) for a in acting)
        rewards = {a: 1.0 if right[a] else -1.0 for a in acting}
        self.t += 1
        ends = {a: self._end(a) for a in acting}
        self.agents = [a for a in self.possible_agents if self._plan(a, self.t)]
        self._draw()
        seen = sorted({*acting, *self.agents}, reverse=True)  # in another order
        return (
            self._seen(seen),
            rewards,
            {a: ends[a] == "terminated" for a in acting},
            {a: ends[a] == "truncated" for a in acting},
            self._infos(seen),
        )

    def render(self) -> np.ndarray:
        return np.full((16, 16, 3), 20 * self.t, np.uint8)

    def close(self) -> None:
        self.agents = []

    def _plan(self, agent: str, t: int) -> bool:
        return any(begin <= t < end for begin, end, _ in self._plans(agent))

    def _end(self, agent: str) -> str | None:
        ends = {end: how for _, end, how in self._plans(agent)}
        return ends.get(self.t)

    def _plans(self, agent: str) -> tuple[tuple[int, int, str], ...]:
        return PLANS.get(agent, STAYS)

    def _draw(self) -> None:
        self.signs = self.rng.choice([-1.0, 1.0], len(self.possible_agents))

    def _sign(self, agent: str) -> float:
        return float(self.signs[self.possible_agents.index(agent)])

    def _only_one(self, agent: str) -> bool:
        return (self.t + self.possible_agents.index(agent)) % 2 == 0

    def _seen(self, agents: list[str]) -> dict[str, Any]:
        return {
            a: np.array(
                [
                    self._sign(a),
                    self.t / LENGTH,
                    self.possible_agents.index(a) / 4,
                    self.episode,
                ],
                np.float32,
            )
            for a in agents
        }

    def _infos(self, agents: list[str]) -> dict[str, Any]:
        masks = {}
        for a in agents:
            allowed = np.ones(2, np.int8)
            if self._only_one(a):
                allowed[int(self._sign(a) < 0)] = 0
            masks[a] = {"action_mask": allowed, "time": self.t}
        return masks


parallel_env = Team


def save(team: Team) -> dict[str, Any]:
    return {
        "agents": list(team.agents),
        "episode": team.episode,
        "t": team.t,
        "signs": team.signs.copy(),
        "rng": team.rng.bit_generator.state,
    }


def load(team: Team, state: dict[str, Any]) -> None:
    team.agents = list(state["agents"])
    team.episode = state["episode"]
    team.t = state["t"]
    team.signs = state["signs"].copy()
    team.rng = np.random.default_rng()
    team.rng.bit_generator.state = state["rng"]


ENV_ADAPTERS["tests.team:Team"] = StateAdapter(save, load)
