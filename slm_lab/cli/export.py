"""The commands `export`, `push` and `pull`: their output and exit codes."""

from pathlib import Path

from slm_lab.cli.display.screen import console, print_line
from slm_lab.core.errors import UsageError
from slm_lab.experiment.export import hub
from slm_lab.experiment.export.export import export_agent
from slm_lab.experiment.saved_run import SavedAgent, SavedRun


def export_run(run: SavedRun, agent: SavedAgent, to: str, out: Path | None) -> int:
    """Writes the file, prints what it holds, and returns the exit code. Raises LabError."""
    name = f"{run.run_dir.root.resolve().name}_s{agent.session}_{agent.which}_{agent.frame}.{to}"
    path = Path(name) if out is None else out
    if path.suffix != f".{to}":
        raise UsageError(f"--out {path}: must end in .{to}")
    found, screen = export_agent(run, agent, path), console()
    kind = f"{run.spec.agent.algorithm.name} on {run.spec.env.name}"
    at = f"{agent.which} at frame {agent.frame:,}"
    print_line(screen, f"{kind}, Session {agent.session}, {at}: {path}")
    if found is not None:
        gaps = f"actions {found.action:.2g}, of values {found.values:.2g}"
        print_line(screen, f"{found.observations} observations: largest difference of {gaps}")
    return 0


def push_run(run: SavedRun, agent: SavedAgent, repo: str, private: bool) -> int:
    """Shares the agent on the Hub, prints its address, and returns the exit code."""
    print_line(console(), hub.push(run, agent, repo, private))
    return 0


def pull_run(repo: str, out: Path | None) -> int:
    """Downloads a shared run, prints how to use it, and returns the exit code."""
    path = hub.pull(repo, out)
    print_line(console(), f"{path}: slm-lab run eval@{path}")
    return 0
