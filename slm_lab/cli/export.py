"""The command `slm-lab export`: its output."""

from pathlib import Path

from slm_lab.cli.display.screen import console, print_line
from slm_lab.core.errors import UsageError
from slm_lab.experiment.export.export import export_agent
from slm_lab.experiment.saved_run import SavedAgent, SavedRun


def export_run(run: SavedRun, agent: SavedAgent, to: str, out: Path | None) -> None:
    """Writes the file and prints what it holds. Raises LabError."""
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
