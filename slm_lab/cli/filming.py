"""`enjoy@RUN --video`: what is said while episodes are filmed, and what is left of the last one."""

from contextlib import suppress

from rich.console import Console

from slm_lab.cli.screen import say
from slm_lab.core.errors import LabError
from slm_lab.env.step import FinishedEpisodes
from slm_lab.experiment.evaluate import Evaluator
from slm_lab.experiment.video import MAX_STEPS, VideoFilm

EVERY = 10
"""Steps between two looks at how many there were."""


def film_episodes(console: Console, evaluator: Evaluator, film: VideoFilm, count: int) -> None:
    """Plays `count` episodes, each into a file of `film`, and says how they ended.

    One that is not over after MAX_STEPS steps is cut. On a KeyboardInterrupt the file of the
    running episode is made whole before it is passed on.
    """
    with console.status("") as status:

        def enough() -> bool:
            if film.length % EVERY == 0:
                status.update(f"episode {len(film.finished) + 1}: {film.length:,} steps so far")
            return film.length > MAX_STEPS

        try:
            while (left := count - len(film.finished)) > 0:
                for episode in evaluator.finished_episodes(left, enough):
                    say(console, f"{described(episode, len(film.finished))}, {film.finished[-1]}")
                if film.length:
                    steps = film.length - 1
                    evaluator.env.reset()  # which ends it for the film
                    _say_of_a_part(console, film, "cut", steps)
        except KeyboardInterrupt:
            steps = film.length - 1
            with suppress(LabError):  # a file that cannot be made whole is dropped
                if steps >= 0:
                    film.end()
                    _say_of_a_part(console, film, "stopped", steps)
            raise


def described(episode: FinishedEpisodes, number: int) -> str:
    """An episode of one environment in words."""
    (episode_return,), (length,) = episode.episode_return, episode.episode_length
    return f"episode {number}: return {episode_return:.6g}, {length:,} steps"


def _say_of_a_part(console: Console, film: VideoFilm, how: str, steps: int) -> None:
    say(
        console,
        f"episode {len(film.finished)}: {how} after {steps:,} steps, {film.finished[-1]}",
    )
