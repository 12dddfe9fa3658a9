"""Independent seeds for every random generator, from one root seed."""

from dataclasses import dataclass, fields

import numpy as np

_NO_TRIAL = 2**32 - 1


@dataclass(frozen=True)
class SessionSeeds:
    """The seeds of one Session, independent of each other and of every other Session's."""

    env: int
    init: int
    action: int
    sampling: int
    rigorous_eval: int
    """evaluations during training"""
    eval_command: int
    """episodes played after training; they differ from those that selected the best agent"""
    video: int
    """episodes recorded during training"""


def session_seeds(root_seed: int, trial: int, session: int, frame: int = 0) -> SessionSeeds:
    """The seeds of Session `session` of Trial `trial` under the root seed of the run. A replacement
    process that starts fresh episodes at `frame` > 0 gets other seeds. With the same ones it would
    repeat the first episodes."""
    key = (trial, session) if frame == 0 else (trial, session, frame)
    sequence = np.random.SeedSequence(root_seed, spawn_key=key)
    children = sequence.spawn(len(fields(SessionSeeds)))
    return SessionSeeds(*(int(child.generate_state(1)[0]) for child in children))


def search_seeds(root_seed: int) -> tuple[int, int]:
    """The seeds of a search's Searcher, which proposes trials, and Scheduler, which ends them."""
    sequence = np.random.SeedSequence(root_seed, spawn_key=(_NO_TRIAL, 0))
    searcher, scheduler = sequence.generate_state(2)
    return int(searcher), int(scheduler)


def confirming_seed(root_seed: int, trial: int) -> int:
    """The root seed of the confirming run that repeats a search trial's spec."""
    sequence = np.random.SeedSequence(root_seed, spawn_key=(_NO_TRIAL, 1, trial))
    return int(sequence.generate_state(1)[0])


def draw_root_seed() -> int:
    """A fresh root seed from the operating system, short enough to type."""
    return int(np.random.SeedSequence().generate_state(1)[0])
