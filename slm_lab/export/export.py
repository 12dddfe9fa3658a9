"""Writes a saved agent to one file: a graph for other programs, or an archive to
share."""

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.files import write_atomically
from slm_lab.core.process import quietly
from slm_lab.core.types import Array, FloatArray
from slm_lab.env.lookup import require
from slm_lab.export.policy_graph import PolicyGraph
from slm_lab.export.shared_run import shared_files, zipped
from slm_lab.records.policy import Policy, build_policy, play
from slm_lab.records.saved_run import SavedAgent, SavedRun

Outputs: TypeAlias = Callable[[Mapping[str, Array]], Sequence[Array]]
"""From the inputs of a file, by name, to its outputs."""

# in one environment; of each input, since a file was made with two
STEPS = 200
COPIES = 3
TOLERANCE = 1e-5
"""Of float outputs, absolute and relative; of scaled actions in units of half their
range."""


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
    inputs = {name: each[:1] for name, each in graph.inputs.items()}
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


def _gap(name: str, own: Array, found: Array, scale: FloatArray | float = 1.0) -> float:
    """The largest difference of a row (1, ...) of the agent to (COPIES, ...) of the
    file. Layers round an output by the size of their terms, so the largest output sets
    the tolerance."""
    flat = found.reshape(COPIES, -1)
    expected = own.reshape(1, -1)
    tolerance = 0.0
    if own.dtype.kind == "f":
        tolerance = TOLERANCE
    largest = np.abs(expected).max(initial=0)
    gap = float(np.abs(flat.astype(float) - expected).max())
    is_close = np.allclose(flat, expected, 0.0, tolerance * np.maximum(scale, largest))
    if not is_close or (found.shape[1:], found.dtype) != (own.shape[1:], own.dtype):
        raise LabError(
            f"the exported {name} differ from the agent's by up to {gap:.2g}, more "
            f"than rounding of numbers up to {largest:.3g}; nothing was written. "
            "Please report this policy"
        )
    return gap


def export_agent(
    run: SavedRun, saved: SavedAgent, path: Path, force: bool = False
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
    run: SavedRun, saved: SavedAgent, path: Path
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
        why = str(error).strip().partition("\n")[0]
        raise LabError(
            f"torch cannot export this policy as {path.suffix}: {why}"
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
