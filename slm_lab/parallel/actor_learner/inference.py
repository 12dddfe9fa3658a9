"""Central inference: actors send observations to the learner's process and receive actions.

One forward pass serves all waiting actors. It pays if a pass has a large fixed cost and a small one
per observation: with large networks, and on a GPU, which then only one process uses.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.agent import Agent
from slm_lab.agent.algorithm.algorithm import Actor
from slm_lab.agent.batch import Act
from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.core.types import Array, FloatArray, IntArray, StateDict
from slm_lab.parallel.actor_learner.weights import WeightStore
from slm_lab.parallel.wait import wait_until

NAP_SECONDS = 0.00005
"""Polling interval of the server, and of an actor while it waits."""
GATHER_SECONDS = 0.0005
"""How long the server waits for more requests, so that one pass serves all actors."""


class TrainingOver(Exception):  # noqa: N818 - not an error: it ends an unroll that is not needed
    """The training ended while an actor waited for its actions."""


@final
@dataclass(frozen=True)
class InferenceBuffers:
    """Requests of N actors with K environments each, and the replies, in shared memory."""

    obs: Tensor
    """(N, K, bytes) uint8: observations"""
    action: Tensor
    """(N, K, bytes) uint8: actions"""
    numbers: Tensor
    """(N, 2, K) float32: log-probabilities and values"""
    about: Tensor
    """(N, 2) float64: the request's frame of the Trial; the reply's exploration variable"""
    counts: Tensor
    """(3, N) int64: requests by the actor; replies by the server, and their policy version"""

    @classmethod
    def of(
        cls, layout: MemoryLayout, num_actors: int, place: Callable[[Tensor], Tensor]
    ) -> "InferenceBuffers":
        """Buffers for steps of `layout`; `place` moves tensors into shared memory."""
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
class InferenceClient(Actor):
    """The acting half of one actor, whose network is in the learner's process.

    `wait(until, nap)` polls a condition; it returns False if the training ends first.
    """

    def __init__(
        self,
        requests: InferenceBuffers,
        layout: MemoryLayout,
        actor: int,
        wait: Callable[[Callable[[], bool], float], bool],
    ) -> None:
        self.version = 0
        self.explore_var: float | None = None
        self.waited = 0.0
        """Seconds spent waiting for replies so far."""
        self._actor = actor
        self._wait = wait
        obs, action = requests.views(layout)
        self._obs, self._action = obs[actor], action[actor]
        self._numbers = requests.numbers.numpy()[actor]
        self._about = requests.about.numpy()[actor]
        self._requested, self._replied, self._versions = requests.counts.numpy()

    @override
    def act(self, obs: Array, frame: int) -> Act:
        """Raises TrainingOver if the training ends meanwhile, PeerLostError if no reply comes in
        time."""
        me = self._actor
        self._obs[:] = obs
        self._about[0] = frame
        request = int(max(self._requested[me], self._replied[me])) + 1
        self._requested[me] = request
        began = time.perf_counter()
        if not self._wait(lambda: bool(self._replied[me] == request), NAP_SECONDS):
            raise TrainingOver
        self.waited += time.perf_counter() - began
        self.version = int(self._versions[me])
        self.explore_var = None if np.isnan(self._about[1]) else float(self._about[1])
        log_prob, value = self._numbers.copy()
        return Act(self._action.copy(), log_prob, value, self.version)

    @override
    def act_greedily(self, obs: Array) -> Array:
        """Raises TypeError: central inference is for training only."""
        raise TypeError("an actor without a network does not evaluate")

    @override
    def state_dict(self) -> StateDict:
        return {}

    @override
    def load_state_dict(self, state: StateDict) -> None: ...


@final
class InferenceServer:
    """Acts for all actors, in a thread of the learner's process, with the published weights."""

    def __init__(
        self, requests: InferenceBuffers, layout: MemoryLayout, agent: Agent, weights: WeightStore
    ) -> None:
        self._agent = agent
        self._weights = weights
        self._obs, self._action = requests.views(layout)
        self._numbers = requests.numbers.numpy()
        self._about = requests.about.numpy()
        self._requested, self._replied, self._versions = requests.counts.numpy()
        self._loaded_count = 0
        self._statistics: FloatArray = np.zeros(weights.statistics.shape[1])
        self._is_over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="inference", daemon=True)

    def start(self) -> None:
        """Starts replying."""
        self._thread.start()

    def check(self) -> None:
        """Raises the error that ended the thread, if any."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stops replying."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _serve(self) -> None:
        try:
            while not self._is_over.is_set():
                waiting = self._gather()
                if len(waiting):
                    self._reply(waiting)
                else:
                    time.sleep(NAP_SECONDS)
        except Exception as error:
            self._error = error

    def _gather(self) -> IntArray:
        """The waiting actors: all, or those that wait when GATHER_SECONDS have passed."""
        if len(self._waiting()):
            size = len(self._requested)
            wait_until(lambda: len(self._waiting()) == size, GATHER_SECONDS, NAP_SECONDS)
        return self._waiting()

    def _waiting(self) -> IntArray:
        return np.flatnonzero(self._requested > self._replied)

    def _reply(self, waiting: IntArray) -> None:
        actor = self._agent.actor
        if self._weights.count != self._loaded_count:
            self._loaded_count = self._weights.count
            actor.version = self._weights.take(self._agent.learner.flats, self._statistics)
        requested = self._requested[waiting]
        obs = self._obs[waiting]
        act = actor.act(obs.reshape(-1, *obs.shape[2:]), int(self._about[waiting, 0].max()))
        lead = obs.shape[:2]
        self._action[waiting] = act.action.reshape(*lead, *act.action.shape[1:])
        self._numbers[waiting, 0] = act.log_prob.reshape(lead)
        self._numbers[waiting, 1] = act.value.reshape(lead)
        explore_var = actor.explore_var
        self._about[waiting, 1] = np.nan if explore_var is None else explore_var
        self._versions[waiting] = act.version
        self._replied[waiting] = requested
