"""Writes a saved agent to one file: a graph for other programs, or an archive to
share."""

import copy
import io
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net.action_mask import action_mask, mask_first
from slm_lab.agent.net.parts import PartsBody, as_vector
from slm_lab.agent.net.policy_value import PolicyHead
from slm_lab.agent.net.recurrent import RecurrentNet
from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.files import write_atomically
from slm_lab.core.observation import FLOAT32, ObservationLayout
from slm_lab.core.process import quietly
from slm_lab.core.types import Array, FloatArray
from slm_lab.env.adapter import Batch
from slm_lab.env.convert.action import (
    ActionConverter,
    AnyActionConverter,
    MixedConverter,
)
from slm_lab.env.convert.mask import MASK
from slm_lab.env.convert.observation import discrete_parts
from slm_lab.env.convert.parts import PartConverter, leaves
from slm_lab.env.extras import require
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


OBS = "obs"
"""The input with an observation without parts."""
MASK_INPUT = "mask"
"""The input with the mask of actions."""
STATE = "state"
"""The input with the recurrent state."""
ACTION = "action"
"""The output with the action; with parts it begins the name of each."""
VALUES = "values"
"""The output with the policy's first output."""
NEXT_STATE = "next_state"
"""The output with the recurrent state after the step."""


def _input_names(parts: Collection[str], outputs: Collection[str]) -> dict[str, str]:
    """The input for each part of the observation, by the part. It has the part's name,
    or "obs.NAME" where a file has that name for something else."""
    reserved = {"", MASK_INPUT, STATE, ACTION, VALUES, NEXT_STATE, *outputs}
    names: dict[str, str] = {}
    for part in parts:
        name = part
        while name in reserved or (name != part and name in parts):
            name = f"{OBS}.{name}"
        names[part] = name
    return names


class SeenPart(NamedTuple):
    """A part of the observation that a policy sees, as an input of its own."""

    converter: PartConverter
    is_image: bool
    """Whether it is encoded as an image."""
    channels_last: bool
    normalized: slice | None
    """Its columns among the normalised numbers; None without normalisation."""
    start: Array | None
    """The first value of each index; None for other numbers."""


def _parts_seen(policy: Policy, module: nn.Module) -> dict[str, SeenPart]:
    """The parts that the encoders in `module` see, by name. Empty for a policy that
    sees an observation as a whole."""
    bodies = [body for body in module.modules() if isinstance(body, PartsBody)]
    rows = policy.adapter.rows
    layout = policy.adapter.layout
    if not bodies or rows is None:
        return {}
    (body,) = bodies
    # joined frames of one vector are its own columns
    sees_some = layout.frames == 1 and set(body.names) < set(layout.names)
    if not (layout.is_bytes or layout.mask is not None or sees_some):
        return {}
    converters = {converter.part.name: converter for converter in rows.parts}
    return {
        name: _seen_part(converters[name], layout, body.sees_image(name))
        for name in body.names
    }


def _seen_part(
    converter: PartConverter, layout: ObservationLayout, is_image: bool
) -> SeenPart:
    part = converter.part
    channels_last = part.channels_last
    if converter.image is not None:
        channels_last = converter.image.channels_last
    normalized = None
    if part.dtype == FLOAT32 and layout.num_floats:
        columns = FLOAT32.itemsize // layout.dtype.itemsize
        normalized = slice(part.start // columns, part.end // columns)
    start = None
    if isinstance(converter.space, spaces.Discrete | spaces.MultiDiscrete):
        start, _ = discrete_parts(converter.space)
    return SeenPart(
        converter=converter,
        is_image=is_image,
        channels_last=channels_last,
        normalized=normalized,
        start=start,
    )


@final
class PartGraph(nn.Module):
    """`ActionConverter` in torch."""

    def __init__(self, converter: ActionConverter) -> None:
        super().__init__()
        self._shape = converter.shape
        self._dtype = _torch_dtype(converter.dtype)
        constants = {"start": converter.start}
        if converter.joint is not None:
            constants |= converter.joint._asdict()
        if converter.scaling is not None:
            constants |= converter.scaling._asdict()
        _register(self, constants)

    @override
    def forward(self, action: Tensor) -> Tensor:
        """The agent's actions (B, …) → the environment's actions, (B, *shape)."""
        if "strides" in self._buffers:
            strides = self.get_buffer("strides")
            action = action[:, None] // strides % self.get_buffer("sizes")
        if "half_width" in self._buffers:
            action = action.double() * self.get_buffer("half_width")
            action = action + self.get_buffer("middle")
            action = action.clamp(self.get_buffer("low"), self.get_buffer("high"))
        if "start" in self._buffers:
            action = action + self.get_buffer("start")
        return action.reshape(-1, *self._shape).to(self._dtype)


@final
class WholeAction(nn.Module):
    """An action without parts."""

    def __init__(self, converter: ActionConverter) -> None:
        super().__init__()
        self.names = [ACTION]
        """The outputs of a file with it."""
        self._part = PartGraph(converter)

    @override
    def forward(self, action: Tensor) -> tuple[Tensor, ...]:
        """The actions for the environment, (B, *shape)."""
        return (self._part(action),)


@final
class ActionInParts(nn.Module):
    """`MixedConverter` in torch: each part is an output of its own."""

    def __init__(self, converter: MixedConverter) -> None:
        super().__init__()
        self.names = [f"{ACTION}.{name}" for name in converter.parts]
        """The outputs of a file with it."""
        self._columns = converter.space.columns
        self._types = [
            _torch_dtype(part.space.dtype) for part in converter.parts.values()
        ]
        self._parts = nn.ModuleList(map(PartGraph, converter.parts.values()))

    @override
    def forward(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Rows (B, K) → the parts of the actions for the environment, (B, …) each."""
        parts = zip(self._parts, self._columns, self._types, strict=True)
        return tuple(part(rows[:, columns].to(dtype)) for part, columns, dtype in parts)


def _action_graph(converter: AnyActionConverter) -> WholeAction | ActionInParts:
    if isinstance(converter, MixedConverter):
        return ActionInParts(converter)
    return WholeAction(converter)


def _register(module: nn.Module, constants: Mapping[str, Array | None]) -> None:
    """Makes the arrays buffers of the module. A buffer of None, over which torch.export
    stumbles, is left out."""
    for name, array in constants.items():
        if array is not None:
            module.register_buffer(name, torch.from_numpy(array.copy()))


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
        self._action = _action_graph(conversions.action)
        constants = {"first": self._observation.first_column}
        if normalizer is not None:
            names = ("mean", "deviation", "bound")
            constants |= dict(zip(names, normalizer.constants(), strict=True))
        _register(self, constants)
        self.outputs = [*self._action.names, VALUES]
        self._parts = _parts_seen(policy, self._module)
        self._input_of = _input_names(self._parts, self.outputs)
        self.sources = {name: part for part, name in self._input_of.items()}
        """The part of the observation that each input has; `OBS` is the whole."""
        seen = {
            self._input_of[name]: part.converter.space
            for name, part in self._parts.items()
        }
        if not seen:
            seen = {OBS: policy.adapter.row_space}
            self.sources = {OBS: OBS}
        if policy.adapter.masks is not None:
            seen[MASK_INPUT] = policy.adapter.masks.space[MASK]
            self.sources[MASK_INPUT] = MASK
        frames = () if self._joiner is None else (self._joiner.length,)
        self.inputs = {
            name: np.zeros((2, *frames, *(space.shape or ())), space.dtype)
            for name, space in seen.items()
        }
        """An example of each input, with B = 2; named as in the file."""
        for net in self._module.modules():
            if isinstance(net, RecurrentNet):
                self.inputs[STATE] = np.zeros((2, net.state_size), np.float32)
                self.outputs.append(NEXT_STATE)
        batch = torch.export.Dim("batch")
        self.shapes = (tuple({0: batch} for _ in self.inputs),)
        """The axes of any size."""
        self.example = tuple(map(torch.from_numpy, self.inputs.values()))

    @override
    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Maps the `inputs` to the action (B, *shape of an action) and the policy's
        first output (B, P). An action with parts is an output for each part. A
        recurrent policy also returns the state (B, H) after the step. Stacked frames
        are (B, L, ...)."""
        inputs = dict(zip(self.inputs, tensors, strict=True))
        state = inputs.get(STATE)
        observed = self._observed(inputs)
        if state is None:
            params, *others = self._module(observed)
        else:
            assert isinstance(self._module, RecurrentNet | PolicyHead)
            params, *others = self._module.advance(observed, state)
        if MASK_INPUT in inputs:
            allowed = self._newest(inputs[MASK_INPUT]) != 0
            params = mask_first(params, allowed)
        actions = self._action(self._family(params).mode())
        if state is None:
            return (*actions, params)
        return (*actions, params, others[-1])

    def _observed(self, inputs: Mapping[str, Tensor]) -> Tensor | dict[str, Tensor]:
        """What the network sees: an observation, or the parts of one."""
        if self._parts:
            return {
                name: self._part(part, inputs[self._input_of[name]])
                for name, part in self._parts.items()
            }
        obs = inputs[OBS]
        if self._joiner is None:
            return self._frame(obs)
        frames = self._frame(obs.flatten(0, 1))
        return frames.reshape(-1, *(self._joiner.space.shape or ()))

    def _newest(self, numbers: Tensor) -> Tensor:
        """The newest of stacked frames."""
        return numbers if self._joiner is None else numbers[:, -1]

    def _part(self, part: SeenPart, numbers: Tensor) -> Tensor:
        """A part as `PartsBody.join` takes it, from how the environment gives it."""
        if part.is_image:
            # frames become channels
            frames = numbers if self._joiner is not None else numbers.unsqueeze(1)
            return self._channels_first(part, frames).flatten(1, -3)
        newest = self._newest(numbers)
        if part.converter.image is not None:
            return self._channels_first(part, newest).flatten(1)
        numbers = newest.reshape(newest.shape[0], -1)
        if part.start is not None:
            numbers = numbers - torch.from_numpy(part.start)
            if part.normalized is None:
                return numbers
            # a row of floats has one-hots, which are normalised too
            numbers = as_vector(numbers, part.converter.part)
        mean = self._constant("mean")
        if mean is None or part.normalized is None:
            return numbers.float()
        deviation = self.get_buffer("deviation")
        bound = self.get_buffer("bound")[part.normalized]
        x = (numbers - mean[part.normalized]) / deviation[part.normalized]
        return x.clamp(-bound, bound).float()

    def _channels_first(self, part: SeenPart, images: Tensor) -> Tensor:
        """Images (B, …, H, W, C), or as `part` says, to (B, …, C, H, W)."""
        shape = part.converter.space.shape or ()
        if len(shape) == 2:
            return images.unsqueeze(-3)
        if part.channels_last:
            images = images.movedim(-1, -3)
        return images

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
        bound = self.get_buffer("bound")
        x = (x.flatten(1) - mean) / self.get_buffer("deviation")
        return x.clamp(-bound, bound).float().reshape(-1, *shape)

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
    converters = _converters(policy.adapter.conversions.action)
    assert module is not None, "a graph was made of it"
    device = next(module.parameters()).device
    mask = action_mask(policy.adapter.layout)
    largest = np.zeros(2)
    scales = [_tolerance_scale(converter) for converter in converters]
    inputs = {name: value[:1] for name, value in graph.inputs.items()}
    for step in play(policy, STEPS):
        inputs = _next_inputs(graph, inputs, step.batch, step.starts)
        results = outputs_of(
            {name: np.repeat(x, COPIES, 0) for name, x in inputs.items()}
        )
        outputs = dict(zip(graph.outputs, results, strict=True))
        with torch.inference_mode():
            rows = torch.from_numpy(step.rows).to(device)
            values = module(rows)[0]
            if mask is not None:
                values = mask(values, rows)
        actions = leaves(policy.adapter.env_action_space, step.action)
        rows_of_parts = zip(actions, results, scales, strict=False)
        action_gaps = [
            _gap("actions", action, result, scale)
            for (_, _, action), result, scale in rows_of_parts
        ]
        value_gap = _gap("values", values.cpu().numpy(), outputs[VALUES])
        largest = np.maximum(largest, (max(action_gaps), value_gap))
        if NEXT_STATE in outputs:
            inputs[STATE] = outputs[NEXT_STATE][:1]
    return Difference(float(largest[0]), float(largest[1]), STEPS)


def _converters(converter: AnyActionConverter) -> Sequence[ActionConverter]:
    """The converters of the parts of an action, or of the whole."""
    if isinstance(converter, MixedConverter):
        return list(converter.parts.values())
    return [converter]


def _tolerance_scale(converter: ActionConverter) -> FloatArray:
    """The unit of the tolerance of actions, (A,) or (1,)."""
    if converter.scaling is None:
        return np.ones(1)
    return converter.scaling.half_width.clip(1)


def _next_inputs(
    graph: PolicyGraph, inputs: Mapping[str, Array], batch: Batch, starts: bool
) -> dict[str, Array]:
    """The inputs of a file for the next observation (1, ...): see
    docs/trained_agents.md."""
    observed = {OBS: batch.obs, **batch.parts}
    following: dict[str, Array] = {}
    for name, before in inputs.items():
        if name == STATE:
            following[name] = before * np.float32(not starts)
        else:
            newest = observed[graph.sources[name]]
            assert newest is not None
            following[name] = _joined(before, newest.astype(before.dtype), starts)
    return following


def _joined(before: Array, newest: Array, starts: bool) -> Array:
    """The stacked frames `before` (1, L, …), shifted by the newest (1, …); without
    stacks the newest alone."""
    if before.ndim == newest.ndim:
        return newest
    earlier = before
    if starts:
        earlier = np.repeat(newest[:, None], before.shape[1], 1)
    return np.concatenate([earlier[:, 1:], newest[:, None]], 1)


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
    another suffix, an unwritable path, or without `force` a file that exists. Raises
    MissingExtraError. Raises LabError if the two differ or the policy has no graph."""
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
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
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
