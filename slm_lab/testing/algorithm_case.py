"""One case of the contract of an algorithm: a small spec, and how it is trained in each
mode."""

import copy
import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from slm_lab.core.errors import SpecError
from slm_lab.parallel.all_reduce.process_groups import GroupBuffers
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.session.session import Session
from slm_lab.session.status_board import StatusBoard
from slm_lab.spec.load import parse_spec
from slm_lab.spec.schema.optim import OptimSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.testing.sessions import Rank, run_session

ModeWord: TypeAlias = Literal["shared", "synced", "all_reduce", "actor_learner"]

SHARED_OPTIMIZER = {"name": "GlobalAdam", "lr": 1e-3}
"""An optimizer that workers without a lock can share."""


@dataclass(frozen=True)
class AlgorithmCase:
    """A small spec of the algorithm: a block with `agent` and `env`, as in a spec file.

    It must learn four times or more within `max_frame` frames, over all environments. A
    rollout must fit into a quarter of them. Its environment must be one whose state can
    be saved exactly, such as CartPole-v1 or Pendulum-v1."""

    data: dict[str, Any]
    """The spec; keys of `meta` that the tests need are set by them."""
    bounded: bool = True
    """Whether every action that it draws lies in the action space; others are
    clipped."""
    max_frame: int = 400
    """Frames of a whole training, over all environments."""
    agents_leave: bool = False
    """Whether its environment has agents that leave before others, or join later. Then
    a step has not always as many frames."""

    @cached_property
    def spec(self) -> Spec:
        """The spec with a row in the CSV after each quarter of its budget."""
        return self.with_budget(self.max_frame)

    def with_budget(self, max_frame: int) -> Spec:
        """The spec with another budget, and rows at the same frames."""
        return self.changed({"max_frame": max_frame}, {})

    def changed(self, env: dict[str, Any], meta: dict[str, Any]) -> Spec:
        """The spec with these keys in the blocks `env` and `meta`. Raises SpecError."""
        fixed = {
            "distributed": False,
            "keep_checkpoints": 2,
            "log_frequency": self.max_frame // 4,
            "max_session": 1,
            "save_interval": 0,
        }
        data = copy.deepcopy(self.data)
        data["env"] |= {"max_frame": self.max_frame, **env}
        data["meta"] = {**data.get("meta", {}), **fixed, **meta}
        return parse_spec("small", data)

    @property
    def name(self) -> str:
        """The name of the algorithm."""
        return str(self.data["agent"]["algorithm"]["name"])

    @property
    def learns(self) -> bool:
        """Whether there is anything to learn from."""
        return "memory" in self.data["agent"]

    @property
    def steps(self) -> int:
        """Vector steps in the budget."""
        return self.max_frame // int(self.data["env"].get("num_envs", 1))

    def refusal(self, mode: ModeWord) -> str | None:
        """Why the spec check refuses the mode for it; None if it works in the mode."""
        try:
            self.in_mode(mode)
        except SpecError as error:
            return "; ".join(map(str, error.problems))
        return None

    def in_mode(self, mode: ModeWord) -> Spec:
        """The spec of one worker in this mode. Raises SpecError if it is refused."""
        if mode == "actor_learner":
            return self.played_in_turn()
        if mode == "all_reduce":
            self.changed({}, {"distributed": mode, "max_session": 2})
            return self.spec
        case = self.with_shared_optimizers()
        case.changed({}, {"distributed": mode, "max_session": 2})
        return case.spec

    def with_shared_optimizers(self) -> Self:
        """The case with optimizers that workers can share without a lock."""
        data = copy.deepcopy(self.data)
        for block in ("net", "critic_net"):
            net = data["agent"].get(block, {})
            whole = OptimSpec.model_validate(net.get("optim_spec", SHARED_OPTIMIZER))
            _, optimizer = whole.stepping("")
            if not optimizer.name.startswith("Global"):
                net["optim_spec"] = SHARED_OPTIMIZER
        return replace(self, data=data)

    def on_whole_rollouts(self, **meta: Any) -> Spec:
        """The spec with rows in the CSV and an end between two rollouts. A Session
        writes and ends between two steps, a learner between two unrolls."""
        spec = self.spec
        algorithm = spec.agent.algorithm
        rollout = spec.env.num_envs
        if algorithm.MEMORY != "replay":
            rollout *= algorithm.rollout_length()
        frequency = rollout * math.ceil(self.max_frame / 4 / rollout)
        return self.changed(
            {"max_frame": 3 * frequency}, {"log_frequency": frequency, **meta}
        )

    def played_in_turn(self, num_actors: int = 1, **flow: Any) -> Spec:
        """This spec, with its actors and the learner in one process. A replay learner
        receives step by step, so it learns after the same steps as without actors.
        Raises SpecError if it cannot learn from actors."""
        if self.spec.agent.algorithm.MEMORY == "replay":
            flow = {"unroll_length": 1, **flow}
        return self.on_whole_rollouts(
            distributed="actor_learner",
            max_session=num_actors,
            actor_learner={"serial": True, **flow},
        )

    def train(
        self, mode: ModeWord, spec: Spec, folder: Path, **options: Any
    ) -> Session:
        """Trains one worker of the mode in this process."""
        if mode == "actor_learner":
            return run_session(spec, folder, serially=True, **options)
        if mode == "all_reduce":
            rank = Rank(0, StatusBoard.allocate(CONTEXT, 1), GroupBuffers.of(1))
            return run_session(spec, folder, rank=rank, **options)
        return run_session(spec, folder, hogwild=mode, **options)
