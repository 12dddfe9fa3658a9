"""Central inference: actors send observations to the learner's process and receive
actions.

One forward pass serves all waiting actors. It pays if a pass costs much per call and
little per observation. This is so for large networks, and on a GPU, which only one
process then uses."""

import math
import threading
import time
from collections.abc import Callable
from typing import Any, final

import numpy as np
from typing_extensions import override

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.algorithm.algorithm import Actor
from slm_lab.agent.batch import Act
from slm_lab.agent.device import new_stream, separate_stream
from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Array, FloatArray, IntArray
from slm_lab.parallel.actor_learner.weights import WeightStore
from slm_lab.parallel.shared_memory import aligned_record
from slm_lab.parallel.wait import wait_until

NAP_SECONDS = 0.00005
"""Polling interval of the server, and of an actor while it waits."""
GATHER_SECONDS = 0.0005
"""How long the server waits for more requests, so that one pass serves all actors."""


class TrainingOver(Exception):  # noqa: N818 - not an error: it ends an unroll that is not needed
    """The training ended while an actor waited for its actions."""


def request_record(layout: MemoryLayout) -> np.dtype[np.void]:
    """An actor's request for actions in its K environments, and the reply."""
    lead = (layout.num_envs,)
    return aligned_record(
        {
            "obs": (layout.obs_dtype, (*lead, *layout.obs_shape)),
            "frame": (np.int64, ()),
            "requested": (np.int64, ()),
            "action": (layout.action_dtype, (*lead, *layout.action_shape)),
            "log_prob": (np.float32, lead),
            "value": (np.float32, lead),
            "explore_var": (np.float64, ()),
            "version": (np.int64, ()),
            "replied": (np.int64, ()),
        }
    )


@final
class InferenceClient(SavedFields, Actor):
    """The acting half of one actor, whose network is in the learner's process.
    `request` is its record, see `request_record`: it counts its requests, the server
    its replies. `wait(until, nap)` polls a condition; it returns False if the training
    ends first."""

    def __init__(
        self, request: Any, wait: Callable[[Callable[[], bool], float], bool]
    ) -> None:
        self.version = 0
        self.explore_var: float | None = None
        self._request = request
        self._wait = wait

    @override
    def act(self, obs: Array, frame: int) -> Act:
        """Raises TrainingOver at the training's end, PeerLostError without a reply in
        time."""
        request = self._request
        request["obs"] = obs
        request["frame"] = frame
        number = int(max(request["requested"], request["replied"])) + 1
        request["requested"] = number
        if not self._wait(lambda: bool(request["replied"] == number), NAP_SECONDS):
            raise TrainingOver
        self.version = int(request["version"])
        explore_var = float(request["explore_var"])
        self.explore_var = None if math.isnan(explore_var) else explore_var
        action, log_prob, value = (
            request[name].copy() for name in ("action", "log_prob", "value")
        )
        return Act(action, log_prob, value, self.version)

    @override
    def act_greedily(self, obs: Array) -> Array:
        raise TypeError("an actor without a network does not evaluate")


@final
class InferenceServer:
    """Acts for all actors, in a thread of the learner's process, with the published
    weights. `requests`, (N,), are records of all actors."""

    def __init__(
        self, requests: Array, agent: LearningAgent, weights: WeightStore
    ) -> None:
        self._agent = agent
        self._weights = weights
        self._requests = requests
        self._loaded_count = 0
        self._statistics: FloatArray = np.zeros(weights.statistics.shape[1])
        self._is_over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(
            target=self._serve, name="inference", daemon=True
        )

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
        device = next(iter(self._agent.learner.flats.values())).vector.device
        try:
            with separate_stream(new_stream(device, priority=-1)):
                while not self._is_over.is_set():
                    waiting = self._gather()
                    if len(waiting):
                        self._reply(waiting)
                    else:
                        time.sleep(NAP_SECONDS)
        except Exception as error:
            self._error = error

    def _gather(self) -> IntArray:
        """The waiting actors: all of them, or the ones that wait when GATHER_SECONDS
        have passed."""
        if len(self._waiting()):
            every = len(self._requests)
            wait_until(
                lambda: len(self._waiting()) == every, GATHER_SECONDS, NAP_SECONDS
            )
        return self._waiting()

    def _waiting(self) -> IntArray:
        return np.flatnonzero(self._requests["requested"] > self._requests["replied"])

    def _reply(self, waiting: IntArray) -> None:
        actor = self._agent.actor
        if self._weights.count != self._loaded_count:
            self._loaded_count = self._weights.count
            actor.version = self._weights.take(
                self._agent.learner.flats, self._statistics
            )
        requests = self._requests[waiting]  # a copy
        obs = requests["obs"]
        lead = requests["log_prob"].shape
        act = actor.act(obs.reshape(-1, *obs.shape[2:]), int(requests["frame"].max()))
        reply = {
            "action": act.action.reshape(*lead, *act.action.shape[1:]),
            "log_prob": act.log_prob.reshape(lead),
            "value": act.value.reshape(lead),
            "explore_var": math.nan if actor.explore_var is None else actor.explore_var,
            "version": act.version,
            "replied": requests["requested"],  # last: the actor reads the others then
        }
        for name, content in reply.items():
            self._requests[name][waiting] = content
