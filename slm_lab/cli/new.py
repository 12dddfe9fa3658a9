"""The command `new`: a commented spec for an environment that has none."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from slm_lab.cli.display.screen import console, print_line
from slm_lab.core.text import count_text, duration_text, significant, with_spread
from slm_lab.recipes.env_facts import EnvFacts, env_facts
from slm_lab.recipes.new_file import NewFile
from slm_lab.records.trust import command_text


def write_new(
    env_id: str,
    algorithm: str,
    out: Path | None,
    sets: Sequence[str],
    imports: Sequence[str],
) -> None:
    """Probes the environment, writes the file with `sets` ("key=value"), prints what to
    do next. Raises LabError if the environment cannot be used, UsageError for a file
    that exists."""
    screen = console()
    file = NewFile(env_id, algorithm, out, sets)
    facts = env_facts(file.env)
    _print_facts(screen, env_id, facts)
    spec = file.write(facts, imports)
    kind = f"{spec.agent.algorithm.name}, recipe {file.recipe.name}"
    print_line(screen, f"wrote {file.path}: {kind}")
    budget = spec.env.max_frame
    steps = duration_text(budget / facts.frames_per_s)
    purpose = f"the budget of {budget:,} frames: {steps} of steps alone"
    _print_next(
        screen=screen, path=file.path, name=file.name, imports=imports, budget=purpose
    )


def _print_facts(screen: Console, env: str, facts: EnvFacts) -> None:
    play = facts.play
    returns = (
        f"{significant(play.unfinished)} so far: no episode ended in {play.steps:,} "
        "steps"
    )
    if play.returns:
        length = significant(play.mean_length)
        source = f"{count_text(len(play.returns), 'episode')} of {length} steps"
        returns = f"{with_spread(play.mean_return, play.return_std)} ({source})"
    print_line(screen, env, "bold")
    if facts.agents:
        print_line(screen, f"  {'agents':<14}{_some(facts.agents)}")
    for label, text in (
        ("observations", facts.observations),
        ("actions", facts.actions),
        ("speed", f"{significant(play.steps_per_s)} steps/s of one copy"),
        ("random return", returns),
    ):
        print_line(screen, f"  {label:<14}{' '.join(text.split())}")
    for note in facts.notes:
        print_line(screen, f"  note: {note}", "yellow")


MOST_NAMED = 6
"""The most agents that are named."""


def _some(agents: Sequence[str]) -> str:
    """The number of agents, and the names of the first."""
    names = ", ".join(agents[:MOST_NAMED])
    if agents[MOST_NAMED:]:
        names += ", …"
    return f"{len(agents)}: {names}"


def _print_next(
    screen: Console, path: Path, name: str, imports: Sequence[str], budget: str
) -> None:
    # With the file, its imports are allowed; a run folder alone may import nothing.
    played = [f"eval@{name}"]
    if imports:
        played.insert(0, str(path))
    purposes = (
        ([str(path), "dev"], "a few training events, with extra checks"),
        ([str(path), "train"], budget),
        (played, "greedy episodes of the trained agents"),
    )
    commands = [
        (command_text(["run", *words], ()), purpose) for words, purpose in purposes
    ]
    width = max(len(command) for command, _ in commands)
    print_line(screen, "next:")
    for command, purpose in commands:
        print_line(screen, f"  {command:<{width}}  # {purpose}")
