"""`slm-lab run … eval@RUN` and `enjoy@RUN`: greedy episodes of a run's saved agents."""

from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from slm_lab.cli.display import screen
from slm_lab.cli.display.screen import print_heading, print_json, print_line
from slm_lab.core.errors import LabError
from slm_lab.core.files import refuse_links, write_json
from slm_lab.core.process import global_generators_seeded, stop_signals_blocked
from slm_lab.core.text import significant
from slm_lab.env.simulators.film import headless
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.metrics.tracker import info_means
from slm_lab.records.checkpoints import AgentCheckpoint, Which
from slm_lab.records.playable_run import PlayableRun
from slm_lab.records.run_source import RunSource
from slm_lab.session.build import set_up_torch
from slm_lab.session.evaluator import Evaluator
from slm_lab.session.play_episodes import (
    join_episodes,
    longest,
    summarise_episodes,
)
from slm_lab.session.seeding import session_seeds
from slm_lab.session.video import MAX_STEPS, VideoFilm
from slm_lab.studies.evaluation import evaluation_document, play_greedily

EVAL_EPISODES = 100
ENJOY_EPISODES = 5
EVERY = 10
"""Steps between two updates of the progress of a film."""


def evaluate(source: RunSource) -> int:
    """Evaluates the agents of a run and prints a table; returns the exit code. Raises
    LabError."""
    console = screen.console(quiet=source.output != "text")
    saved = PlayableRun(source)
    set_up_torch(saved.spec.meta.threads)
    sessions = saved.sessions(source.session)
    begun = [
        session for session in sessions if saved.checkpoints.has_checkpoint(session)
    ]
    agents = [
        saved.checkpoints.load(session, source.which) for session in begun or sessions
    ]
    _introduce(
        console=console,
        verb="evaluating",
        saved=saved,
        agents=agents,
        which=source.which,
    )
    for session in sorted({*sessions} - {*begun}):
        print_line(console, f"Session {session} has no saved agent: left out", "yellow")
    count = source.episodes or EVAL_EPISODES
    results = [(agent, _play(console, saved, agent, count)) for agent in agents]
    console.print(_table(results))
    for agent, episodes in results:
        means = info_means(saved.spec.env.info_keys, episodes.info, saved.agents)
        known = [
            f"{name} {significant(mean)}"
            for name, mean in means.items()
            if mean is not None
        ]
        if known:
            print_line(console, f"Session {agent.session}: {', '.join(known)}")
    document = evaluation_document(saved, results)
    if source.save:
        file = saved.record.evaluation_file
        refuse_links(saved.record.folder)
        verb = "replaced" if file.exists() else "saved"
        write_json(file, document)
        print_line(console, f"{verb} {file}")
    if source.output == "json":
        print_json(document)
    return 0


def enjoy(source: RunSource) -> int:
    """Plays episodes of one agent; returns the exit code. `source.render` shows them
    in a window. `source.video` writes each to a file in the current folder, of at most
    MAX_STEPS steps. Raises LabError, and UsageError if the environment cannot be shown
    or drawn."""
    console = screen.console(quiet=source.output == "nothing")
    saved = PlayableRun(source)
    set_up_torch(saved.spec.meta.threads)
    (session,) = saved.sessions(source.session or 0)
    agent = saved.checkpoints.load(session, source.which)
    seeds = session_seeds(saved.root_seed, saved.record.trial, session)
    _introduce(
        console=console,
        verb="enjoying",
        saved=saved,
        agents=[agent],
        which=source.which,
    )
    # In the current folder, because `enjoy` never changes a run folder.
    run = saved.record.folder.resolve().name
    stem = f"{run}_s{agent.session}_{agent.which}_{agent.frame}"
    with (
        global_generators_seeded(seeds.eval_command),
        headless() if source.video else nullcontext(),
        closing(
            VideoFilm(lambda number: Path.cwd() / f"{stem}_episode{number}.mp4")
        ) as film,
        closing(
            saved.stage(agent, source.render, film if source.video else None)
        ) as evaluator,
    ):
        count = source.episodes or ENJOY_EPISODES
        if source.video:
            film_episodes(console, evaluator, film, count)
            return 0
        for number, episode in enumerate(evaluator.finished_episodes(count), start=1):
            print_line(console, describe_episode(episode, number))
    return 0


def film_episodes(
    console: Console, evaluator: Evaluator, film: VideoFilm, count: int
) -> None:
    """Plays `count` episodes, each of at most MAX_STEPS steps into a file of `film`,
    and prints their results. A KeyboardInterrupt completes the file of the running
    episode."""
    with console.status("") as status:

        def enough() -> bool:
            if film.length % EVERY == 0:
                status.update(
                    f"episode {len(film.finished) + 1}: {film.length:,} steps so far"
                )
            return film.length > MAX_STEPS

        try:
            while len(film.finished) < count:
                missing = count - len(film.finished)
                for episode in evaluator.finished_episodes(missing, enough):
                    text = describe_episode(episode, len(film.finished))
                    print_line(console, f"{text}, {film.finished[-1]}")
                if film.length:
                    steps = film.length - 1
                    evaluator.env.reset()  # ends the episode in the film
                    _print_part(console, film, "cut", steps)
        except KeyboardInterrupt:
            steps = film.length - 1
            with suppress(LabError):  # a file that cannot be completed is dropped
                if steps >= 0:
                    film.end()
                    _print_part(console, film, "stopped", steps)
            raise


def describe_episode(episode: FinishedEpisodes, number: int) -> str:
    """An episode of one environment as text; with several agents, the episode of
    each."""
    returns = episode.episode_return
    steps = f"{longest(episode):,} steps"
    if len(returns) == 1:
        return f"episode {number}: return {returns[0]:.6g}, {steps}"
    summary = summarise_episodes(episode)
    spread = f"{summary['min']:.6g} to {summary['max']:.6g}"
    return (
        f"episode {number}: mean return of {len(returns)} agents "
        f"{summary['mean']:.6g} ({spread}), {steps}"
    )


def _print_part(console: Console, film: VideoFilm, how: str, steps: int) -> None:
    print_line(
        console,
        f"episode {len(film.finished)}: {how} after {steps:,} steps, "
        f"{film.finished[-1]}",
    )


def _play(
    console: Console, saved: PlayableRun, agent: AgentCheckpoint, count: int
) -> FinishedEpisodes:
    status = console.status("")
    # its thread inherits the mask: no signal interrupts `Workers`
    with stop_signals_blocked():
        status.start()

    def show(done: int) -> bool:
        status.update(f"Session {agent.session}: {done} of {count} episodes")
        return True

    with status:
        return play_greedily(saved, agent, count, show)


def _introduce(
    console: Console,
    verb: str,
    saved: PlayableRun,
    agents: Sequence[AgentCheckpoint],
    which: Which | None,
) -> None:
    spec = saved.spec
    subject = ""
    if saved.record.is_trial_of_search:
        subject = f"t{saved.record.trial} of the search"
    kind = "shared run" if saved.record.place.suffix == ".zip" else "run folder"
    rest = (
        f": {spec.agent.algorithm.name} on {spec.env.name}, greedy, seed "
        f"{saved.root_seed}\n{kind} {saved.record.place}"
    )
    notes = []
    for agent in agents:
        session = f"Session {agent.session}"
        if which is None and agent.which == "latest":
            notes.append(f"{session} has no best agent yet: its latest agent plays")
        if agent.frame == 0:
            notes.append(
                f"{session} stopped at frame 0: its agent has not been trained"
            )
    print_heading(
        console=console,
        verb=f"{verb} {subject}".strip(),
        name=spec.name,
        rest=rest,
        notes=notes,
    )


def _table(results: Sequence[tuple[AgentCheckpoint, FinishedEpisodes]]) -> Table:
    # Narrow, for nine columns of large numbers in a terminal of 80.
    style: dict[str, Any] = {
        "box": SIMPLE_HEAD,
        "pad_edge": False,
        "padding": (0, 1, 0, 0),
    }
    table = Table(
        title="Episode returns", title_justify="left", title_style="bold", **style
    )
    for name in (
        "Session",
        "agent",
        "frame",
        "episodes",
        "mean",
        "std",
        "min",
        "max",
        "length",
    ):
        table.add_column(
            name, justify="left" if name == "agent" else "right", no_wrap=True
        )
    for agent, episodes in results:
        table.add_row(
            str(agent.session), agent.which, f"{agent.frame:,}", *_numbers(episodes)
        )
    trained = [episodes for agent, episodes in results if agent.frame > 0]
    if len(trained) > 1:
        table.add_section()
        table.add_row("all", "", "", *_numbers(join_episodes(trained)))
    return table


def _numbers(episodes: FinishedEpisodes) -> list[str]:
    count, *numbers = summarise_episodes(episodes).values()
    return [f"{count:,}", *map(significant, numbers)]
