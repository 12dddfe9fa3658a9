"""Writes the policy of a saved agent to a file for programs without this lab."""

from pathlib import Path

from slm_lab.core.errors import UsageError
from slm_lab.core.files import write_atomically
from slm_lab.experiment.export.graph_check import Difference, compare
from slm_lab.experiment.export.graph_file import onnx_file, pt2_file
from slm_lab.experiment.export.policy_graph import PolicyGraph
from slm_lab.experiment.policy import build_policy
from slm_lab.experiment.saved_run import SavedAgent
from slm_lab.spec.schema.spec import Spec

GRAPHS = {".onnx": onnx_file, ".pt2": pt2_file}
"""By suffix."""


def export_policy(spec: Spec, saved: SavedAgent, path: Path) -> Difference:
    """Writes the greedy policy of `saved` to `path`, whose suffix chooses the format.

    Before that the graph acts beside the agent on real observations. Raises UsageError for another
    suffix, MissingExtraError, and LabError if the two differ or the policy has no graph.
    """
    if path.suffix not in GRAPHS:
        raise UsageError(f"{path}: must end in {' or '.join(GRAPHS)}")
    policy = build_policy(spec, saved)
    graph = PolicyGraph(policy)
    content, run = GRAPHS[path.suffix](graph)
    difference = compare(policy, graph, run)
    write_atomically(path, content)
    return difference
