"""Writes a saved agent to one file: a graph for other programs, or an archive to
share."""

import copy
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net.recurrent import RecurrentNet
from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.files import write_atomically
from slm_lab.core.process import quietly
from slm_lab.core.types import Array, FloatArray
from slm_lab.env.lookup import require
from slm_lab.export.shared_run import shared_files, zipped
from slm_lab.records.checkpoints import AgentCheckpoint
from slm_lab.records.playable_run import PlayableRun
from slm_lab.records.policy import Policy, build_policy, play


def file_name(saved: PlayableRun, agent: AgentCheckpoint, form: str) -> str:
    """The name of a file for an agent, after its run: "RUN_t3_s0_best_5000.onnx"."""
    run = saved.record.folder.resolve().name
    trial = ""
    if saved.record.is_trial_of_search:
        trial = f"_t{saved.record.trial}"
    return f"{run}{trial}_s{agent.session}_{agent.which}_{agent.frame}.{form}"


@final
class PolicyGraph(nn.Module):
    """Observations (B, ...) → actions and the parameters of their distribution. It
    repeats the conversions of `env.convert`, the network and the most likely action in
    torch, on the CPU. All numbers that they need are constants of it."""

    def __init__(self, policy: Policy) -> None:
        """Raises LabError for a policy that has no such graph."""
        super().__init__()
        conversions = policy.adapter.conversions
        actor = policy.actor
        self._observation = conversions.observation
        self._action = conversions.action
        self._joiner = conversions.joiner
        normalizer = conversions.normalizer
        if actor.module is None or actor.family is None:
            raise LabError("an agent without a network cannot be exported")
        if self._observation.resizes:
            raise LabError(
                "env.image_downsize: an image that Pillow resizes cannot be exported; "
                "resize it in the environment, as "
                "gymnasium.wrappers.ResizeObservation does"
            )
        self._module = copy.deepcopy(actor.module).cpu().requires_grad_(False)
        self._family = actor.family
        self._clip = math.inf
        constants = {
            "first": self._observation.first_column,
            "start": self._action.start,
        }
        if normalizer is not None:
            self._clip = math.inf if normalizer.clip is None else normalizer.clip
            constants |= {"mean": normalizer.statistics.mean}
            constants |= {"deviation": normalizer.statistics.deviation()}
        if self._action.scaling is not None:
            constants |= self._action.scaling._asdict()
        for name, array in constants.items():
            if array is not None:  # torch.export stumbles over a buffer of None
                self.register_buffer(name, torch.from_numpy(array.copy()))
        space = policy.adapter.row_space
        frames = () if self._joiner is None else (self._joiner.length,)
        self.inputs = {"obs": np.zeros((2, *frames, *(space.shape or ())), space.dtype)}
        """An example of each input, with B = 2; named as in the file."""
        self.outputs = ["action", "values"]
        for net in self._module.modules():
            if isinstance(net, RecurrentNet):
                self.inputs["state"] = np.zeros((2, net.state_size), np.float32)
                self.outputs.append("next_state")
        batch = torch.export.Dim("batch")
        self.shapes = {name: {0: batch} for name in self.inputs}
        """The axes of any size."""
        self.example = tuple(map(torch.from_numpy, self.inputs.values()))

    @override
    def forward(self, obs: Tensor, state: Tensor | None = None) -> tuple[Tensor, ...]:
        """The action (B, *shape of an action) and the policy's first output (B, P); of
        a recurrent policy also the state (B, H) after the step. Stacked frames are (B,
        L, ...)."""
        if self._joiner is None:
            x = self._frame(obs)
        else:
            x = self._frame(obs.flatten(0, 1)).reshape(
                -1, *(self._joiner.space.shape or ())
            )
        if state is not None:
            x = torch.cat([x, state, torch.ones_like(state[:, :1])], 1)
        params, *others = self._module(x)
        action = self._env_action(self._family(params).mode())
        if state is None:
            return (action, params)
        return (action, params, others[-1])

    def _frame(self, obs: Tensor) -> Tensor:
        converter = self._observation
        first = self._constant("first")
        mean = self._constant("mean")
        shape = converter.space.shape or ()
        if first is None:
            x = obs
            if converter.channels_last:
                x = obs.movedim(-1, -3)
            x = x.reshape(-1, *shape).to(_torch_dtype(converter.space.dtype))
        else:
            columns = obs.reshape(-1, len(first), 1) + first[:, None]
            x = (columns == torch.arange(math.prod(shape))).any(1).float()
        if mean is None:
            return x
        x = (x.flatten(1) - mean) / self.get_buffer("deviation")
        return x.clamp(-self._clip, self._clip).float().reshape(-1, *shape)

    def _env_action(self, action: Tensor) -> Tensor:
        half_width = self._constant("half_width")
        start = self._constant("start")
        if half_width is not None:
            action = action.double() * half_width + self.get_buffer("middle")
            action = action.clamp(self.get_buffer("low"), self.get_buffer("high"))
        elif start is not None:
            action = action + start
        return action.reshape(-1, *self._action.shape).to(
            _torch_dtype(self._action.dtype)
        )

    def _constant(self, name: str) -> Tensor | None:
        return self._buffers.get(name)


def _torch_dtype(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.zeros(1, dtype)).dtype


Outputs: TypeAlias = Callable[[Mapping[str, Array]], Sequence[Array]]
"""A function from the inputs of a file, by name, to its outputs."""

# in one environment; of each input, since a file was made with two
STEPS = 200
COPIES = 3
TOLERANCE = 1e-5
"""The largest difference of float outputs, absolute and relative; for scaled actions it
is in units of half their range."""


class Difference(NamedTuple):
    """The largest absolute differences between a file and the agent."""

    action: float
    values: float
    observations: int
    """How many were compared."""


def compare(policy: Policy, graph: PolicyGraph, outputs_of: Outputs) -> Difference:
    """Plays `STEPS` steps of the agent. Raises LabError at the first output that is not
    its own."""
    module = policy.actor.module
    scaling = policy.adapter.conversions.action.scaling
    assert module is not None, "a graph was made of it"
    device = next(module.parameters()).device
    largest = np.zeros(2)
    scale = np.ones(1) if scaling is None else scaling.half_width.clip(1)
    inputs = {name: value[:1] for name, value in graph.inputs.items()}
    for step in play(policy, STEPS):
        inputs = _next_inputs(inputs, step.obs, step.starts)
        outputs = outputs_of(
            {name: np.repeat(x, COPIES, 0) for name, x in inputs.items()}
        )
        with torch.inference_mode():
            values = module(torch.from_numpy(step.rows).to(device))[0].cpu().numpy()
        gaps = (
            _gap("actions", step.action, outputs[0], scale),
            _gap("values", values, outputs[1]),
        )
        largest = np.maximum(largest, gaps)
        inputs |= zip(("state",), (state[:1] for state in outputs[2:]), strict=False)
    return Difference(float(largest[0]), float(largest[1]), STEPS)


def _next_inputs(
    inputs: Mapping[str, Array], obs: Array, starts: bool
) -> dict[str, Array]:
    """The inputs of a file for the next observation (1, ...): see
    docs/trained_agents.md."""
    before = inputs["obs"]
    newest = obs.astype(before.dtype)
    if before.ndim > obs.ndim:
        earlier = before
        if starts:
            earlier = np.repeat(newest[:, None], before.shape[1], 1)
        newest = np.concatenate([earlier[:, 1:], newest[:, None]], 1)
    state = {
        name: x * np.float32(not starts)
        for name, x in inputs.items()
        if name == "state"
    }
    return {"obs": newest, **state}


def _gap(
    name: str, expected_value: Array, computed: Array, scale: FloatArray | float = 1.0
) -> float:
    """The largest difference of a row (1, ...) of the agent to (COPIES, ...) of the
    file. Layers round an output by the size of their terms, so the largest output sets
    the tolerance."""
    flat = computed.reshape(COPIES, -1)
    expected = expected_value.reshape(1, -1)
    tolerance = 0.0
    if expected_value.dtype.kind == "f":
        tolerance = TOLERANCE
    largest = np.abs(expected).max(initial=0)
    gap = float(np.abs(flat.astype(float) - expected).max())
    is_close = np.allclose(flat, expected, 0.0, tolerance * np.maximum(scale, largest))
    if not is_close or (computed.shape[1:], computed.dtype) != (
        expected_value.shape[1:],
        expected_value.dtype,
    ):
        raise LabError(
            f"the exported {name} differ from the agent's by up to {gap:.2g}, more "
            f"than rounding of numbers up to {largest:.3g}; nothing was written. "
            "Please report this policy"
        )
    return gap


def export_agent(
    run: PlayableRun, saved: AgentCheckpoint, path: Path, force: bool = False
) -> Difference | None:
    """Writes the agent `saved` of `run` to `path`, whose suffix chooses the format. A
    graph first acts beside the agent; None for a zip file. Raises UsageError for
    another suffix, an unwritable path, or without `force` a file that exists;
    MissingExtraError, LabError if the two differ or the policy has no graph."""
    if path.suffix not in (*GRAPHS, ".zip"):
        raise UsageError(f"{path}: must end in {', '.join(GRAPHS)} or .zip")
    if os.path.isfile(path) and not force:
        fix = "choose another file, or replace it with --force (in Python: force=True)"
        raise UsageError(f"{path} exists; {fix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content, difference = _exported(run, saved, path)
        write_atomically(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    return difference


def _exported(
    run: PlayableRun, saved: AgentCheckpoint, path: Path
) -> tuple[bytes, Difference | None]:
    if path.suffix == ".zip":
        return zipped(shared_files(run, saved, path.name)), None
    policy = build_policy(run, saved)
    graph = PolicyGraph(policy)
    try:
        # Torch warns about itself, and logs every package that it could use.
        with quietly("torch.onnx"):
            content, outputs_of = GRAPHS[path.suffix](graph)
    except LabError:
        raise
    except Exception as error:  # the exporters raise errors of many types
        reason = str(error).strip().partition("\n")[0]
        raise LabError(
            f"torch cannot export this policy as {path.suffix}: {reason}"
        ) from error
    return content, compare(policy, graph, outputs_of)


def _onnx(graph: PolicyGraph) -> tuple[bytes, Outputs]:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        require(package, "export")
    import onnxruntime

    program = torch.onnx.export(
        graph,
        graph.example,
        input_names=list(graph.inputs),
        output_names=graph.outputs,
        dynamic_shapes=graph.shapes,
        external_data=False,
        verbose=False,
    )
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, lambda inputs: session.run(None, dict(inputs))


def _pt2(graph: PolicyGraph) -> tuple[bytes, Outputs]:
    file = io.BytesIO()
    torch.export.save(
        torch.export.export(graph, graph.example, dynamic_shapes=graph.shapes), file
    )
    content = file.getvalue()
    module = torch.export.load(io.BytesIO(content)).module()
    return content, lambda inputs: [
        np.asarray(output) for output in module(*map(torch.from_numpy, inputs.values()))
    ]


GRAPHS: dict[str, Callable[[PolicyGraph], tuple[bytes, Outputs]]] = {
    ".onnx": _onnx,
    ".pt2": _pt2,
}
