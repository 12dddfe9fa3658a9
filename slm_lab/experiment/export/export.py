"""Writes a saved agent to one file: a graph for other programs, or an archive to share."""

from pathlib import Path

from slm_lab.core.errors import UsageError
from slm_lab.core.files import write_atomically
from slm_lab.experiment.export.graph_check import Difference, compare
from slm_lab.experiment.export.graph_file import onnx_file, pt2_file
from slm_lab.experiment.export.policy_graph import PolicyGraph
from slm_lab.experiment.export.shared_run import write_archive
from slm_lab.experiment.policy import build_policy
from slm_lab.experiment.saved_run import SavedAgent, SavedRun

GRAPHS = {".onnx": onnx_file, ".pt2": pt2_file}
"""By suffix."""


def export_agent(run: SavedRun, saved: SavedAgent, path: Path) -> Difference | None:
    """Writes the agent `saved` of `run` to `path`, whose suffix chooses the format.

    A graph acts beside the agent on real observations before. None for a zip file. Raises
    UsageError for another suffix, MissingExtraError, and LabError if the two differ or the policy
    has no graph.
    """
    if path.suffix == ".zip":
        write_archive(run, saved, path)
        return None
    if path.suffix not in GRAPHS:
        raise UsageError(f"{path}: must end in {', '.join(GRAPHS)} or .zip")
    policy = build_policy(run.spec, saved)
    graph = PolicyGraph(policy)
    content, run_file = GRAPHS[path.suffix](graph)
    difference = compare(policy, graph, run_file)
    write_atomically(path, content)
    return difference
