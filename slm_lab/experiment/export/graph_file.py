"""A policy graph as a file: ONNX, or a program of torch.export."""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from slm_lab.core.errors import LabError
from slm_lab.core.types import Array
from slm_lab.env.lookup import require
from slm_lab.experiment.export.policy_graph import PolicyGraph

Run: TypeAlias = Callable[[Mapping[str, Array]], Sequence[Array]]
"""From the inputs of a graph, by name, to its outputs."""


def onnx_file(graph: PolicyGraph) -> tuple[bytes, Run]:
    """The content of the file, and what onnxruntime makes of it.

    Raises MissingExtraError, and LabError if torch cannot convert the graph.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        require(package, "export")
    import onnxruntime

    example = tuple(map(torch.from_numpy, graph.inputs.values()))
    with _converting("ONNX"):
        program = torch.onnx.export(
            graph,
            example,
            dynamo=True,
            dynamic_shapes=_dynamic(graph),
            input_names=list(graph.inputs),
            output_names=graph.outputs,
            external_data=False,
            verbose=False,
        )
        assert program is not None
        content: bytes = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, lambda inputs: session.run(None, dict(inputs))


def pt2_file(graph: PolicyGraph) -> tuple[bytes, Run]:
    """The same for torch.export."""
    example = tuple(map(torch.from_numpy, graph.inputs.values()))
    buffer = io.BytesIO()
    with _converting("a torch.export program"):
        program = torch.export.export(graph, example, dynamic_shapes=_dynamic(graph))
        torch.export.save(program, buffer)
        module: nn.Module = torch.export.load(io.BytesIO(buffer.getvalue())).module()

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        outputs = module(*map(torch.from_numpy, inputs.values()))
        return [np.asarray(output) for output in outputs]

    return buffer.getvalue(), run


def _dynamic(graph: PolicyGraph) -> dict[str, Any]:
    """The batch is the first axis of every input, of any size."""
    batch = torch.export.Dim("batch")
    return {name: {0: batch} for name in graph.inputs}


@contextmanager
def _converting(form: str) -> Iterator[None]:
    """Silences torch's remarks about itself; converts its errors, which are of many types."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        why = str(error).strip().partition("\n")[0]
        raise LabError(f"torch cannot convert this policy to {form}: {why}") from error
    finally:
        logger.setLevel(level)
