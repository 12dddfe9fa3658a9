"""Agents outside a training, as `slm_lab.load` makes them, and their exported files."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.algorithm.algorithm import AgentSeeds, Learner
from slm_lab.agent.build import build_agent
from slm_lab.api.agent import Agent
from slm_lab.core.types import Array, FloatArray
from slm_lab.env.convert.mask import MASK
from slm_lab.env.convert.nested import element, nested
from slm_lab.env.convert.parts import leaves
from slm_lab.env.make import make_env
from slm_lab.env.vector.raw import env_seeds
from slm_lab.env.vector_env import VectorEnv
from slm_lab.records.checkpoints import AgentCheckpoint
from slm_lab.records.playable_run import PlayableRun
from slm_lab.spec.schema.spec import Spec

SEED = 3
N = 2
"""Environments that an agent plays in at once."""

Run: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""A function from the inputs of a file to its outputs, both by name."""


FRAME = 7
"""The frame of a loaded agent."""


class PolicyFile(NamedTuple):
    """An exported policy, as another program opens it."""

    shapes: Mapping[str, Sequence[int]]
    """The shapes of its inputs, without the batch axis."""
    run: Run


def small_spec(spec: Spec) -> Spec:
    """The spec with N environments, made one by one."""
    env = spec.env.model_copy(update={"num_envs": N, "vectorization_mode": "sync"})
    return spec.model_copy(update={"env": env})


def evaluation_env(spec: Spec) -> VectorEnv:
    """The environments of an evaluation, with moments that change every observation."""
    env = make_env(spec.env.at_frame(FRAME), SEED, training=False)
    for block in env.moments:
        size = (block.stop - block.start - 1) // 2
        mean = np.linspace(0.1, 0.4, size)
        squares = np.linspace(2, 30, size)
        env.statistics[block] = np.concatenate([[9.0], mean, squares])
    return env


def untrained(spec: Spec, vector: VectorEnv) -> LearningAgent:
    """A new agent for these environments."""
    return build_agent(
        spec.agent.for_acting(),
        vector.layout,
        vector.action_space,
        num_envs=N,
        seeds=AgentSeeds(0, 1, 2),
    )


def outside(spec: Spec, learner: Learner[Any], statistics: FloatArray) -> Agent:
    """The agent of this learner, as `slm_lab.load` makes it of its snapshot."""
    flats = {name: flat.state_dict() for name, flat in learner.flats.items()}
    snapshot = {"frame": FRAME, "flats": flats, "statistics": statistics.copy()}
    saved = AgentCheckpoint(
        session=0,
        which="best",
        frame=FRAME,
        snapshot=snapshot,
        file=Path("file"),
    )
    record = SimpleNamespace(trial=0, folder=Path("run"), place=Path("run"))
    run = cast(PlayableRun, SimpleNamespace(spec=spec, record=record))
    return Agent(run, saved, SEED)


def loaded_agent(spec: Spec) -> Agent:
    """A new agent outside the lab, with weights and moments that matter."""
    with closing(evaluation_env(spec)) as vector:
        return outside(spec, untrained(spec, vector).learner, vector.statistics)


def batched(observations: Sequence[Any]) -> Any:
    """Single observations as a batch, part by part."""
    first = observations[0]
    if isinstance(first, dict):
        return {key: batched([obs[key] for obs in observations]) for key in first}
    if isinstance(first, tuple):
        return tuple(batched(list(parts)) for parts in zip(*observations, strict=True))
    return np.stack(observations)


class Game:
    """Environments of a loaded agent, stepped one by one as its user steps them."""

    def __init__(self, agent: Agent) -> None:
        self.envs = [agent.make_env() for _ in range(N)]
        pairs = zip(self.envs, env_seeds(SEED, N), strict=True)
        self.raw: list[Any] = []
        self.info: list[Mapping[str, Any]] = []
        for env, seed in pairs:
            obs, info = env.reset(seed=seed)
            self.raw.append(obs)
            self.info.append(info)
        self._mask_in = agent._adapter.mask_in

    @property
    def obs(self) -> Any:
        """A batch of the observations to act on next."""
        return batched(self.raw)

    def singles(self, actions: Any) -> list[Any]:
        """The action of each environment in a batch of them."""
        space = self.envs[0].action_space
        return [element(space, actions, n) for n in range(N)]

    @property
    def mask(self) -> Any:
        """The masks of actions that are no part of these; None without them."""
        if self.first_mask is None:
            return None
        return np.stack([self._mask_in(info) for info in self.info])

    @property
    def first_mask(self) -> Any:
        """The mask of the first environment, as `mask`."""
        return self._mask_in(self.info[0])

    def step(self, actions: Any) -> Array:
        """Takes one action in each environment; returns (N,) which episodes ended."""
        done = np.zeros(N, bool)
        pairs = zip(self.envs, self.singles(actions), strict=True)
        for n, (env, action) in enumerate(pairs):
            obs, _, terminated, truncated, info = env.step(action)
            done[n] = terminated or truncated
            if done[n]:
                obs, info = env.reset()
            self.raw[n] = obs
            self.info[n] = info
        return done

    def close(self) -> None:
        """Frees the environments."""
        with ExitStack() as stack:
            for env in self.envs:
                stack.callback(env.close)


def open_onnx(path: Path) -> PolicyFile:
    """The file in onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    shapes = {entry.name: entry.shape[1:] for entry in session.get_inputs()}
    return PolicyFile(
        shapes,
        lambda inputs: dict(zip(names, session.run(None, inputs), strict=True)),
    )


def _deviation(action: Array, expected: Array) -> str:
    """How a file's actions, or a part of them, differ from the agent's."""
    if action.dtype != expected.dtype:
        return f"its actions are {action.dtype}, the agent's {expected.dtype}"
    exact = expected.dtype.kind != "f"
    tolerance = 0.0 if exact else 1e-5
    if not np.allclose(action, expected, tolerance, tolerance):
        return f"it says {action.tolist()}, the agent {expected.tolist()}"
    return ""


def deviation_of_file(
    agent: Agent,
    path: Path,
    open_file: Callable[[Path], PolicyFile],
    steps: int = 40,
) -> str:
    """How the exported file acts differently from the agent; empty if it acts alike. It
    plays by the file alone, as the user of a file does."""
    agent.export(path)
    file = open_file(path)
    num_frames = agent.spec.env.frame_op_len or 0
    adapter = agent._adapter
    stacks: dict[str, list[list[Array]]] = {}
    names = [name for name in file.shapes if name != "state"] or ["obs"]
    state = np.zeros((N, *file.shapes.get("state", (0,))), np.float32)
    with closing(Game(agent)) as game:
        for _ in range(steps):
            batch = adapter.batch(game.obs, game.mask)
            obs = batch.obs.astype(adapter.row_space.dtype)
            observed = {"obs": obs, **batch.parts}
            if MASK in observed:
                observed["mask"] = observed[MASK]
            inputs = {name: observed[name] for name in names}
            for name in inputs if num_frames else ():
                frames = stacks.setdefault(name, [[] for _ in range(N)])
                for n, newest in enumerate(inputs[name]):
                    kept = frames[n] or [newest] * num_frames
                    frames[n] = [*kept[1:], newest]
                inputs[name] = np.stack([np.stack(seen) for seen in frames])
            if "state" in file.shapes:
                inputs["state"] = state
            outputs = file.run(inputs)
            parts: list[Array] = []
            acted = agent.act(game.obs, mask=game.mask)
            for keys, _, expected in leaves(agent.action_space, acted):
                parts.append(outputs[".".join(("action", *keys))])
                deviation = _deviation(parts[-1], expected)
                if deviation:
                    return deviation
            done = game.step(nested(agent.action_space, iter(parts)))
            for frames in stacks.values():
                for n in np.flatnonzero(done).tolist():
                    frames[n] = []
            state = outputs.get("next_state", state)
            state = np.where(done[:, None], np.float32(0), state)
            agent.reset(done)
    return ""
