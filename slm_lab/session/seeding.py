"""Independent seeds for every random generator, from one root seed."""

from dataclasses import dataclass, fields

import numpy as np

_NO_TRIAL = 2**32 - 1


@dataclass(frozen=True)
class ProcessSeeds:
    """Seeds of global generators, in every process that steps environments: see
    `core.process.seed_global_generators`. They have 128 bits, so that no two are
    equal."""

    session: int
    """the Session's process"""
    copies: int
    """the environments that have a process each"""
    evaluation: int
    """the environments of evaluations during training"""


@dataclass(frozen=True)
class SessionSeeds:
    """The seeds of one Session, independent of each other and of every other
    Session's."""

    env: int
    init: int
    action: int
    sampling: int
    rigorous_eval: int
    """evaluations during training"""
    eval_command: int
    """episodes played after training; other episodes selected the best agent"""
    video: int
    """episodes recorded during training"""
    processes: ProcessSeeds


def session_seeds(
    root_seed: int, trial: int, session: int, frame: int = 0
) -> SessionSeeds:
    """The seeds of Session `session` of Trial `trial` under the root seed of the run. A
    replacement process that starts fresh episodes at `frame` > 0 gets other seeds. With
    the same ones it would repeat the first episodes."""
    key = (trial, session) if frame == 0 else (trial, session, frame)
    sequence = np.random.SeedSequence(root_seed, spawn_key=key)
    names = [field.name for field in fields(SessionSeeds) if field.type is int]
    children = zip(names, sequence.spawn(len(names)), strict=True)
    words = {name: int(child.generate_state(1)[0]) for name, child in children}
    return SessionSeeds(
        **words, processes=process_seeds(root_seed, trial, session, frame)
    )


def process_seeds(root_seed: int, trial: int, session: int, frame: int) -> ProcessSeeds:
    """The seeds of global generators for Session `session`, whose process starts at
    `frame`."""
    sequence = np.random.SeedSequence(
        root_seed, spawn_key=(_NO_TRIAL, 2, trial, session, frame)
    )
    words = (
        child.generate_state(4) for child in sequence.spawn(len(fields(ProcessSeeds)))
    )
    return ProcessSeeds(*(int.from_bytes(word.tobytes(), "little") for word in words))


def search_seeds(root_seed: int) -> tuple[int, int]:
    """The seeds of a search's Searcher, which proposes trials, and Scheduler, which
    ends them."""
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
