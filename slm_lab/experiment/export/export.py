"""Writes a saved agent to one file: a graph for other programs, or an archive to share."""

import io
import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.files import write_atomically
from slm_lab.env.lookup import require
from slm_lab.experiment.export.graph_check import Difference, Outputs, compare
from slm_lab.experiment.export.policy_graph import PolicyGraph
from slm_lab.experiment.export.shared_run import shared_files, zipped
from slm_lab.experiment.policy import build_policy
from slm_lab.experiment.saved_run import SavedAgent, SavedRun


def export_agent(run: SavedRun, saved: SavedAgent, path: Path) -> Difference | None:
    """Writes the agent `saved` of `run` to `path`, whose suffix chooses the format.

    A graph acts beside the agent on real observations before. None for a zip file. Raises
    UsageError for another suffix or a path that cannot be written, MissingExtraError, and LabError
    if the two differ or the policy has no graph.
    """
    if path.suffix not in (*GRAPHS, ".zip"):
        raise UsageError(f"{path}: must end in {', '.join(GRAPHS)} or .zip")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content, difference = _exported(run, saved, path)
        write_atomically(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}") from error
    return difference


def _exported(run: SavedRun, saved: SavedAgent, path: Path) -> tuple[bytes, Difference | None]:
    """The content of the file, and how far it differs from the agent."""
    if path.suffix == ".zip":
        return zipped(shared_files(run, saved, path.name)), None
    policy = build_policy(run, saved)
    graph = PolicyGraph(policy)
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it names every package that it could use
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about itself
            content, outputs_of = GRAPHS[path.suffix](graph)
    except LabError:
        raise
    except Exception as error:  # the exporters raise errors of many types
        why = str(error).strip().partition("\n")[0]
        raise LabError(f"torch cannot export this policy as {path.suffix}: {why}") from error
    finally:
        logger.setLevel(level)
    return content, compare(policy, graph, outputs_of)


def _onnx(graph: PolicyGraph) -> tuple[bytes, Outputs]:
    """The content of the file, and what onnxruntime makes of it. Raises MissingExtraError."""
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
    """The content of the file, and what torch makes of it."""
    file = io.BytesIO()
    torch.export.save(torch.export.export(graph, graph.example, dynamic_shapes=graph.shapes), file)
    content = file.getvalue()
    module = torch.export.load(io.BytesIO(content)).module()
    return content, lambda inputs: [
        np.asarray(output) for output in module(*map(torch.from_numpy, inputs.values()))
    ]


GRAPHS: dict[str, Callable[[PolicyGraph], tuple[bytes, Outputs]]] = {".onnx": _onnx, ".pt2": _pt2}
"""By suffix."""
