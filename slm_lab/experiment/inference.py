"""Acting in one place for actors in many: their observations travel, and actions come back.

One forward pass is for all who wait. It pays where a pass costs much by itself and little per
observation: with large networks, and on a GPU, of which one process is enough.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.agent import Agent
from slm_lab.agent.algorithm.algorithm import Actor
from slm_lab.agent.batch import Act
from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.agent.optim.publication import Publication
from slm_lab.core.types import Array, FloatArray, IntArray, StateDict

NAP_SECONDS = 0.00005
"""How long the server sleeps between two looks, and an actor while it waits."""
GATHER_SECONDS = 0.0005
"""How long those that wait are kept waiting for the others, so that one pass does for all."""


class TrainingOver(Exception):  # noqa: N818 - not an error: it ends an unroll that nobody wants
    """The training has ended while an actor waited for its actions."""


@final
@dataclass(frozen=True)
class Requests:
    """What N actors ask, and are answered, in shared memory; K environments each."""

    obs: Tensor
    """(N, K, bytes) uint8: an observation each"""
    action: Tensor
    """(N, K, bytes) uint8: an action each"""
    numbers: Tensor
    """(N, 2, K) float32: log-probabilities and values"""
    about: Tensor
    """(N, 2) float64: the trial's clock as asked with; the exploration variable of the answer"""
    counts: Tensor
    """(3, N) int64: asked by the actor; answered by the server, and with which version"""

    @classmethod
    def of(
        cls, layout: MemoryLayout, num_actors: int, place: Callable[[Tensor], Tensor]
    ) -> "Requests":
        """Room for such steps, where `place` puts tensors."""
        lead = (num_actors, layout.num_envs)
        sizes = [
            int(np.prod(shape)) * np.dtype(dtype).itemsize
            for shape, dtype in (
                (layout.obs_shape, layout.obs_dtype),
                (layout.action_shape, layout.action_dtype),
            )
        ]
        obs, action = (place(torch.zeros((*lead, size), dtype=torch.uint8)) for size in sizes)
        return cls(
            obs,
            action,
            place(torch.zeros((num_actors, 2, layout.num_envs))),
            place(torch.zeros((num_actors, 2), dtype=torch.float64)),
            place(torch.zeros((3, num_actors), dtype=torch.int64)),
        )

    def views(self, layout: MemoryLayout) -> tuple[Array, Array]:
        """Observations (N, K, *obs_shape) and actions (N, K, *action_shape)."""
        lead = self.obs.shape[:2]
        obs, action = self.obs.numpy(), self.action.numpy()
        return (
            obs.view(layout.obs_dtype).reshape(*lead, *layout.obs_shape),
            action.view(layout.action_dtype).reshape(*lead, *layout.action_shape),
        )


@final
class RemoteActor(Actor):
    """The acting half of one actor, whose network is elsewhere.

    `wait` waits until something is so, and says whether it came to be before the end.
    """

    def __init__(
        self,
        requests: Requests,
        layout: MemoryLayout,
        actor: int,
        wait: Callable[[Callable[[], bool], float], bool],
    ) -> None:
        self.version = 0
        self.explore_var: float | None = None
        self.waited = 0.0
        """Seconds so far, for answers."""
        self._actor = actor
        self._wait = wait
        obs, action = requests.views(layout)
        self._obs, self._action = obs[actor], action[actor]
        self._numbers = requests.numbers.numpy()[actor]
        self._about = requests.about.numpy()[actor]
        self._asked, self._answered, self._versions = requests.counts.numpy()

    def act(self, obs: Array, frame: int) -> Act:
        """See `Actor.act`. Raises TrainingOver where it ends meanwhile, PeerLostError where no
        answer comes for too long."""
        me = self._actor
        self._obs[:] = obs
        self._about[0] = frame
        question = int(max(self._asked[me], self._answered[me])) + 1
        self._asked[me] = question
        began = time.perf_counter()
        if not self._wait(lambda: bool(self._answered[me] == question), NAP_SECONDS):
            raise TrainingOver
        self.waited += time.perf_counter() - began
        self.version = int(self._versions[me])
        self.explore_var = None if np.isnan(self._about[1]) else float(self._about[1])
        log_prob, value = self._numbers.copy()
        return Act(self._action.copy(), log_prob, value, self.version)

    def act_greedily(self, obs: Array) -> Array:
        """Raises TypeError: it is asked for training only."""
        raise TypeError("an actor without a network does not evaluate")

    def state_dict(self) -> StateDict:
        """Nothing of its own."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """See `state_dict`."""


@final
class InferenceServer:
    """Acts for all actors, in a thread of the learner's process, with the published weights."""

    def __init__(
        self, requests: Requests, layout: MemoryLayout, agent: Agent, weights: Publication
    ) -> None:
        self._agent = agent
        self._weights = weights
        self._obs, self._action = requests.views(layout)
        self._numbers = requests.numbers.numpy()
        self._about = requests.about.numpy()
        self._asked, self._answered, self._versions = requests.counts.numpy()
        self._taken = 0
        self._statistics: FloatArray = np.zeros(weights.statistics.shape[1])
        self._is_over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="inference", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def check(self) -> None:
        """Raises what has ended it, if something has."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Answers no more."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _serve(self) -> None:
        try:
            while not self._is_over.is_set():
                waiting = self._gather()
                if len(waiting):
                    self._answer(waiting)
                else:
                    time.sleep(NAP_SECONDS)
        except Exception as error:
            self._error = error

    def _gather(self) -> IntArray:
        """The actors that wait: all, or those that do when it has taken long enough."""
        began: float | None = None
        while True:
            waiting = np.flatnonzero(self._asked > self._answered)
            if len(waiting) in (0, len(self._asked)):
                return waiting
            began = time.perf_counter() if began is None else began
            if time.perf_counter() - began > GATHER_SECONDS:
                return waiting
            time.sleep(NAP_SECONDS)

    def _answer(self, waiting: IntArray) -> None:
        actor = self._agent.actor
        if self._weights.count != self._taken:
            self._taken = self._weights.count
            actor.version = self._weights.take(self._agent.learner.flats, self._statistics)
        asked = self._asked[waiting]
        obs = self._obs[waiting]
        act = actor.act(obs.reshape(-1, *obs.shape[2:]), int(self._about[waiting, 0].max()))
        lead = obs.shape[:2]
        self._action[waiting] = act.action.reshape(*lead, *act.action.shape[1:])
        self._numbers[waiting, 0] = act.log_prob.reshape(lead)
        self._numbers[waiting, 1] = act.value.reshape(lead)
        explore_var = actor.explore_var
        self._about[waiting, 1] = np.nan if explore_var is None else explore_var
        self._versions[waiting] = act.version
        self._answered[waiting] = asked
