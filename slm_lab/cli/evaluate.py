"""`slm-lab run … eval@RUN` and `enjoy@RUN`: greedy episodes of a run's saved agents."""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slm_lab.cli import screen
from slm_lab.cli.filming import described, film_episodes
from slm_lab.cli.screen import print_line
from slm_lab.cli.window import window_of
from slm_lab.core.text import significant
from slm_lab.env.simulators.film import Film, headless
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.experiment.saved_run import SavedAgent, SavedRun, Which
from slm_lab.experiment.source import RunSource
from slm_lab.session.evaluator import Evaluator
from slm_lab.session.play_episodes import even_num_envs, join_episodes
from slm_lab.session.torch_setup import set_arithmetic
from slm_lab.session.video import VideoFilm, filmed_spec

EVAL_EPISODES = 100
ENJOY_EPISODES = 5


class Choice(NamedTuple):
    """The agents and episodes to play; None means the default."""

    episodes: int | None = None
    which: Which | None = None
    session: int | None = None


class Evaluated(NamedTuple):
    """An agent and the episodes it played."""

    agent: SavedAgent
    episodes: FinishedEpisodes


def evaluate(source: RunSource, choice: Choice) -> int:
    """Evaluates the agents of a run and prints a table; returns the exit code. Raises LabError."""
    console = screen.console()
    saved = SavedRun(source)
    set_arithmetic(saved.spec.meta.threads)
    sessions = saved.sessions(choice.session)
    begun = [session for session in sessions if saved.has_checkpoint(session)]
    agents = [saved.load(session, choice.which) for session in begun or sessions]
    _introduce(console, "evaluating", saved, agents, choice.which)
    for session in sorted({*sessions} - {*begun}):
        print_line(console, Text(f"Session {session} has no checkpoint yet: left out", "yellow"))
    count = choice.episodes or EVAL_EPISODES
    results = [Evaluated(agent, _play(console, saved, agent, count)) for agent in agents]
    console.print(_table(results))
    return 0


def enjoy(source: RunSource, choice: Choice, render: bool, video: bool) -> int:
    """Plays episodes of one agent; returns the exit code.

    `render` shows them in a window. `video` writes each to a file in the current folder, which ends
    after MAX_STEPS steps or at a Ctrl-C. Raises LabError, and UsageError if the window cannot open
    or the environment cannot be drawn.
    """
    console = screen.console()
    saved = SavedRun(source)
    set_arithmetic(saved.spec.meta.threads)
    (session,) = saved.sessions(choice.session or 0)
    agent = saved.load(session, choice.which)
    _introduce(console, "enjoying", saved, [agent], choice.which)
    with (
        headless() if video else nullcontext(),
        closing(VideoFilm(lambda number: _video_path(agent, number))) as film,
        closing(_stage(saved, agent, render, film if video else None)) as evaluator,
    ):
        agent.load_into(evaluator)
        count = choice.episodes or ENJOY_EPISODES
        if video:
            film_episodes(console, evaluator, film, count)
            return 0
        for number, episode in enumerate(evaluator.finished_episodes(count), start=1):
            print_line(console, described(episode, number))
    return 0


def _video_path(agent: SavedAgent, number: int) -> Path:
    """The path of a video, in the current folder, because `enjoy` never changes a run folder."""
    run = agent.folder.resolve().name
    name = f"{run}_s{agent.session}_{agent.which}_{agent.frame}_episode{number}.mp4"
    return Path.cwd() / name


def _play(console: Console, saved: SavedRun, agent: SavedAgent, count: int) -> FinishedEpisodes:
    """Plays `count` episodes, in as many environments as divide them equally."""
    num_envs = even_num_envs(count)
    parts: list[FinishedEpisodes] = []
    with (
        closing(saved.evaluator(agent.session, num_envs)) as evaluator,
        console.status("") as status,
    ):
        agent.load_into(evaluator)
        for finished in evaluator.finished_episodes(count // num_envs):
            parts.append(finished)
            done = sum(len(part.env_index) for part in parts)
            status.update(f"Session {agent.session}: {done} of {count} episodes")
    return join_episodes(parts)


def _stage(saved: SavedRun, agent: SavedAgent, render: bool, film: Film | None) -> Evaluator:
    """An evaluator with one environment, with its window open (`render`) or filmed."""
    if film is not None:
        return saved.evaluator(agent.session, 1, filmed_spec(saved.spec), film)
    env = saved.spec.env.model_copy(update={"vectorization_mode": "sync"})
    spec = saved.spec.model_copy(update={"env": env})
    if not render:
        return saved.evaluator(agent.session, 1, spec)
    kwargs = {**env.kwargs, "render_mode": "human"}
    shown = spec.model_copy(update={"env": env.model_copy(update={"kwargs": kwargs})})
    with window_of(env):
        return saved.evaluator(agent.session, 1, shown)


def _introduce(
    console: Console,
    verb: str,
    saved: SavedRun,
    agents: Sequence[SavedAgent],
    which: Which | None,
) -> None:
    spec = saved.spec
    of = f"t{saved.trial} of the search " if saved.is_search else ""
    print_line(
        console,
        Text.assemble(
            f"{verb} {of}",
            (spec.name, "bold"),
            f": {spec.agent.algorithm.name} on {spec.env.name}, greedy, seed {saved.root_seed}\n"
            f"run folder {saved.run_dir.root}",
        ),
    )
    for agent in agents:
        if which is None and agent.which == "latest":
            note = f"Session {agent.session} has no best agent yet: its latest agent plays"
            print_line(console, Text(note, "yellow"))
        if agent.frame == 0:
            note = f"Session {agent.session} stopped at frame 0: its agent has not been trained"
            print_line(console, Text(note, "yellow"))


def _table(results: Sequence[Evaluated]) -> Table:
    """Returns and lengths: a row per Session, and a row for all trained agents together."""
    table = Table(
        title="Episode returns",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),  # nine columns of large numbers in a terminal of 80
    )
    for name in ("Session", "agent", "frame", "episodes", "mean", "std", "min", "max", "length"):
        table.add_column(name, justify="left" if name == "agent" else "right", no_wrap=True)
    for agent, episodes in results:
        table.add_row(str(agent.session), agent.which, f"{agent.frame:,}", *_numbers(episodes))
    trained = [result.episodes for result in results if result.agent.frame > 0]
    if len(trained) > 1:
        table.add_section()
        together = join_episodes(trained)
        table.add_row("all", "", "", *_numbers(together))
    return table


def _numbers(episodes: FinishedEpisodes) -> list[str]:
    """Count; mean, population standard deviation, min and max of the returns; mean length."""
    returns = episodes.episode_return
    summary = (returns.mean(), returns.std(), returns.min(), returns.max())
    return [
        f"{len(returns):,}",
        *(significant(value) for value in summary),
        significant(float(episodes.episode_length.mean())),
    ]
