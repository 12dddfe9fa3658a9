"""One root seed to independent seeds for everything that draws."""

from dataclasses import dataclass, fields

import numpy as np

_OF_NO_TRIAL = 2**32 - 1


@dataclass(frozen=True)
class SessionSeeds:
    """The seeds of one Session, independent of each other and of every other Session's."""

    env: int
    init: int
    action: int
    sampling: int
    rigorous_eval: int
    """of the evaluations during training"""
    eval_command: int
    """of the episodes that are played after it: other ones than those that chose the best agent"""
    video: int
    """of the episodes that are recorded during training"""


def session_seeds(root_seed: int, trial: int, session: int, frame: int = 0) -> SessionSeeds:
    """The seeds of Session `session` of Trial `trial` under the root seed of the run.

    Who begins anew at a `frame` of the training, and not where it was saved, has other ones than at
    the first: it would see the same episodes again.
    """
    place = (trial, session) if frame == 0 else (trial, session, frame)
    sequence = np.random.SeedSequence(root_seed, spawn_key=place)
    children = sequence.spawn(len(fields(SessionSeeds)))
    return SessionSeeds(*(int(child.generate_state(1)[0]) for child in children))


def search_seeds(root_seed: int) -> tuple[int, int]:
    """The seeds of what proposes the trials of a search, and of what ends them early."""
    sequence = np.random.SeedSequence(root_seed, spawn_key=(_OF_NO_TRIAL, 0))
    engine, judge = sequence.generate_state(2)
    return int(engine), int(judge)


def confirming_seed(root_seed: int, trial: int) -> int:
    """The root seed under which the spec of a trial of a search is run again."""
    sequence = np.random.SeedSequence(root_seed, spawn_key=(_OF_NO_TRIAL, 1, trial))
    return int(sequence.generate_state(1)[0])


def draw_root_seed() -> int:
    """A fresh root seed from the operating system, short enough to be typed again."""
    return int(np.random.SeedSequence().generate_state(1)[0])
