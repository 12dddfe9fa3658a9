"""`enjoy@RUN --video`: films episodes, reports progress, and completes the last file."""

from contextlib import suppress

from rich.console import Console

from slm_lab.cli.screen import print_line
from slm_lab.core.errors import LabError
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.session.evaluator import Evaluator
from slm_lab.session.video import MAX_STEPS, VideoFilm

EVERY = 10
"""Steps between two updates of the progress."""


def film_episodes(console: Console, evaluator: Evaluator, film: VideoFilm, count: int) -> None:
    """Plays `count` episodes, each into a file of `film`, and prints their results.

    Cuts an episode after MAX_STEPS steps. On a KeyboardInterrupt it completes the file of the
    running episode, and reraises.
    """
    with console.status("") as status:

        def enough() -> bool:
            if film.length % EVERY == 0:
                status.update(f"episode {len(film.finished) + 1}: {film.length:,} steps so far")
            return film.length > MAX_STEPS

        try:
            while (left := count - len(film.finished)) > 0:
                for episode in evaluator.finished_episodes(left, enough):
                    print_line(
                        console, f"{described(episode, len(film.finished))}, {film.finished[-1]}"
                    )
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


def described(episode: FinishedEpisodes, number: int) -> str:
    """An episode of one environment as text."""
    (episode_return,), (length,) = episode.episode_return, episode.episode_length
    return f"episode {number}: return {episode_return:.6g}, {length:,} steps"


def _print_part(console: Console, film: VideoFilm, how: str, steps: int) -> None:
    """Prints the result of an incomplete episode."""
    print_line(
        console,
        f"episode {len(film.finished)}: {how} after {steps:,} steps, {film.finished[-1]}",
    )
