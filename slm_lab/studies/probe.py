"""Short runs of a spec and of changes of its keys, which show what makes it faster
here."""

import importlib.util
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil, inf
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple, final

import numpy as np
from typing_extensions import override

from slm_lab.agent.device import resolve_device
from slm_lab.agent.from_spec.net import with_precision
from slm_lab.core.errors import LabError
from slm_lab.core.process import usable_cores
from slm_lab.core.types import FloatArray
from slm_lab.metrics.trial_state import Params, TrialState
from slm_lab.records.run_source import RunSource
from slm_lab.session.status_board import LOOP_PARTS, StatusBoard
from slm_lab.spec.budget import decays
from slm_lab.spec.modes import MODES, mode_of
from slm_lab.spec.schema.algorithm import ReplayLearningSpec
from slm_lab.spec.schema.net import NetSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.pool import SerialSlot, TrialEnd
from slm_lab.studies.run import check_machine
from slm_lab.studies.study import Agenda, Study
from slm_lab.studies.trial import Trial, TrialTask, stop_on_signals

ENV_FACTORS = (2, 4)
WORTH = 1.05
"""The smallest ratio of two speeds that is a gain."""
BEST = 3
"""The number of changes that run once more, and then for longer."""
SHORT_SECONDS = 4.0
LONG_SECONDS = 6.0
"""How long a run is measured at least, over whole rollouts."""
SLOW_SECONDS = 8.0
"""A first rollout that takes longer is measured, too: starting up is little of it."""
LATE_SECONDS = 150.0
"""How long a run may take until it has been measured."""
SURVEY_SECONDS = 90.0
"""No change is tried for the first time later than this."""
WARM_UP = 1_000
"""Frames before the first training event are cut to these."""
FEW_WEIGHTS = 128 * 128
"""With at most so many between hidden layers, calls take longer than their products."""
ENDLESS = 10**9
"""The budget of a run; it is stopped long before."""

REST = "rest"
BOUNDS = {
    "environment": "the environment",
    "acting": "Python: many small calls to act",
    "memory": "the agent's memory",
    "update": "Python: many small calls to learn",
}
"""What bounds a training that spends most of its time in this part."""


@final
@dataclass(frozen=True)
class Change:
    """Settings for `-s`, and whether the agent learns alike with them, up to
    rounding."""

    sets: tuple[str, ...] = ()
    learns: Literal["alike", "differently"] = "alike"

    @property
    def text(self) -> str:
        """The settings as one text."""
        return " ".join(self.sets) or "as it is"


AS_IS = Change()


class Speed(NamedTuple):
    """The result of a run, over all its Sessions."""

    frames_per_s: float
    shares: Mapping[str, float]
    """The share of the first Session's time of each of LOOP_PARTS, and the REST: rows,
    exchange and waits. Empty if the agent does not learn."""


def candidates(spec: Spec) -> Iterator[Change]:
    """The changes to try, some of which the spec may not allow."""
    cores = usable_cores()
    env = spec.env
    meta = spec.meta
    if env.num_envs > 1 and env.vectorization_mode != "async":
        yield Change(("env.vectorization_mode=async",))
    is_pooled = env.backend == "envpool" or env.vectorization_mode in ("sync", "async")
    if not is_pooled and importlib.util.find_spec("envpool") is not None:
        yield Change(("env.backend=envpool",), "differently")
    threads = cores // meta.num_sessions
    if threads > meta.threads:
        yield Change((f"meta.threads={threads}",))
    exact = [
        k
        for k, n in spec.agent.nets.items()
        if with_precision(n).precision == "float32"
    ]
    half = [key for key in exact if spec.agent.nets[key].multiplies_in_half]
    if half:
        yield Change(
            tuple(f"agent.{key}.precision=bf16" for key in half), "differently"
        )
    wide = [key for key, net in spec.agent.nets.items() if _multiplies_much(net)]
    if wide and meta.threads == 1:
        yield Change(tuple(f"agent.{key}.matmul=numpy" for key in wide))
    if cores > 1 and meta.max_session == 1 and meta.distributed is False:
        for word in MODES.names():
            workers = cores
            if mode_of(word).has_learner:
                workers = cores - 1
            sets = [f"meta.distributed={word}", f"meta.max_session={workers}"]
            sets += ["meta.scale=strong"] if mode_of(word).has_ranks else []
            yield Change(tuple(sets), "differently")
    for factor in ENV_FACTORS:
        yield from _with_more_envs(spec, factor)


def _with_more_envs(spec: Spec, factor: int) -> Iterator[Change]:
    """More environments, with as many gradient steps per frame. A replay algorithm has
    one training event per step of them at most."""
    algorithm = spec.agent.algorithm
    before = spec.env.num_envs
    sets = [f"env.num_envs={factor * before}"]
    if isinstance(algorithm, ReplayLearningSpec) and algorithm.update_to_data is None:
        old, new = (
            n * ceil(algorithm.training_frequency / n)
            for n in (before, factor * before)
        )
        batches, left = divmod(algorithm.training_batch_iter * new, old)
        if left:
            return
        if new != old:
            sets.append(f"agent.algorithm.training_batch_iter={batches}")
    yield Change(tuple(sets), "differently")


def _multiplies_much(net: NetSpec) -> bool:
    """Whether the time of a net goes into products of wide linear layers in float32 by
    torch. That of images goes into convolutions."""
    keys = resolve_device(net.gpu).type, net.matmul, net.precision
    if (
        net.RECURRENT
        or net.conv_layers()
        or keys
        != (
            "cpu",
            "torch",
            "float32",
        )
    ):
        return False
    return max(of_role.hidden_weights() for of_role in net.for_roles) > FEW_WEIGHTS


@final
class Probe(Agenda):
    """A spec on this machine, and the changes that it allows; its runs are in
    `folder`."""

    def __init__(self, source: RunSource, folder: Path) -> None:
        """Raises SpecError and UsageError as `RunSource.load`."""
        super().__init__()
        self._imports = source.imports
        self._folder = folder
        keys = for_probing(source.load())
        self.spec = source.load(keys, warn=False)
        self._specs = {AS_IS: self.spec}
        for change in candidates(self.spec):
            changed = replace(source, sets=(*source.sets, *change.sets))
            with suppress(LabError):
                spec = changed.load(keys, warn=False)
                check_machine(change.text, spec)
                self._specs[change] = spec
        self._turns: list[Change] = []
        """What each run changes."""
        self._speeds: list[tuple[Change, Speed]] = []
        self._study = Study(self, SerialSlot(self._train))

    @property
    def changes(self) -> list[Change]:
        """The changes that the spec and this machine allow."""
        return list(self._specs)[1:]

    def survey(self, on_run: Callable[[int], None]) -> dict[Change, Speed]:
        """Short runs of the spec as it is and of the changes, then of the BEST changes
        and the spec again, because the fastest of several runs is often fast by chance.
        `on_run` gets the number of each run. Leaves out changes that cannot be run, and
        starts none after SURVEY_SECONDS. Raises LabError if the unchanged spec fails,
        KeyboardInterrupt if the user stops it."""
        self._on_run = on_run
        self._ends = time.perf_counter() + SURVEY_SECONDS
        first = self._measure(self._specs, SHORT_SECONDS)
        best = gains(in_order(_means(first)))[:BEST]
        return _means([*first, *self._measure([*best, AS_IS], SHORT_SECONDS)])

    def verify(self, changes: Sequence[Change]) -> dict[Change, Speed]:
        """Longer runs of changes, between two of the unchanged spec. Raises as
        `survey`, also if a change fails."""
        self._on_run = lambda number: None
        self._ends = inf
        return _means(self._measure([AS_IS, *changes, AS_IS], LONG_SECONDS))

    def _measure(
        self, changes: Iterable[Change], seconds: float
    ) -> list[tuple[Change, Speed]]:
        """The speeds of runs of `changes`, each over `seconds`, without those that
        failed."""
        count = len(self._speeds)
        self._seconds = seconds
        self._turns += changes
        self.num_trials = len(self._turns)
        self._study.run()
        return self._speeds[count:]

    @override
    def propose(self, trial: int) -> Params:
        return {"set": self._turns[trial].sets}

    @override
    def task(self, state: TrialState) -> TrialTask:
        change = self._turns[state.trial]
        self._on_run(state.trial + 1)
        if change != AS_IS and time.perf_counter() >= self._ends:
            raise LabError("there is no time left for it")
        spec = self._specs[change]
        run_dir = RunDir.create(self._folder, spec.name, datetime.now())
        return TrialTask(spec, run_dir, 0, imports=self._imports)

    @override
    def conclude(self, state: TrialState) -> None:
        must_run = self._turns[state.trial] == AS_IS or self._ends == inf
        if state.error is not None and must_run:
            raise LabError(state.error)

    def _train(self, trial: int, task: TrialTask) -> TrialEnd:
        self._speeds.append((self._turns[trial], measure(task, self._seconds)))
        return TrialEnd(Ending.FINISHED, {})


def measure(task: TrialTask, seconds: float) -> Speed:
    """Runs a training for `seconds` after its start, and deletes its folder. Raises
    LabError if it fails, KeyboardInterrupt if the user stops it."""
    counted = slice(1) if task.spec.meta.mode.has_learner else slice(None)
    algorithm = task.spec.agent.algorithm
    slow = inf if algorithm.replays else SLOW_SECONDS
    meter = SpeedMeter(seconds, counted, algorithm.NEEDS_NET, slow)
    trial = Trial(task)
    with stop_on_signals(trial.board.request_stop):
        results = trial.train(lambda: meter(trial.board))
    shutil.rmtree(task.run_dir.root)
    for result in results:
        if result.error is not None and not meter.is_over:
            raise LabError(f"a run failed: Session {result.session}: {result.error}")
    if meter.is_late:
        raise LabError(f"a run was not measured within {LATE_SECONDS:g} s")
    if not meter.is_over:
        raise KeyboardInterrupt
    return meter.speed


def _means(turns: Iterable[tuple[Change, Speed]]) -> dict[Change, Speed]:
    """The mean speed of each change, with the shares of its first turn."""
    taken = defaultdict[Change, list[Speed]](list)
    for change, speed in turns:
        taken[change].append(speed)
    rates = {
        change: fmean(run.frames_per_s for run in runs)
        for change, runs in taken.items()
    }
    return {
        change: Speed(rates[change], runs[0].shares) for change, runs in taken.items()
    }


def in_order(speeds: Mapping[Change, Speed]) -> list[tuple[Change, float]]:
    """Changes with their frames/s: AS_IS, then the fastest first; what changes learning
    is last."""
    found = [(each, speed.frames_per_s) for each, speed in speeds.items()]
    return sorted(found, key=lambda each: (each[0] != AS_IS, each[0].learns, -each[1]))


def gains(found: Sequence[tuple[Change, float]]) -> list[Change]:
    """The changes in the result of `in_order` that are faster than AS_IS by WORTH."""
    return [change for change, speed in found if speed > WORTH * found[0][1]]


def bound(spec: Spec, speeds: Mapping[Change, Speed]) -> str:
    """The bottleneck of the spec, from `Probe.survey`."""
    base = speeds[AS_IS]
    cores = usable_cores()
    if spec.meta.num_sessions * spec.meta.threads > cores:
        return f"the cores: {spec.meta.num_sessions} Sessions share {cores}"
    if not base.shares:
        return "the environment: the agent does not learn"
    largest = max(base.shares, key=lambda part: base.shares[part])
    if largest == REST and spec.meta.mode.has_learner:
        return "the actors: the learner waits for their steps"
    if largest == REST:
        is_alone = spec.meta.distributed is False
        return (
            "rows, or other programs" if is_alone else "the exchange between processes"
        )
    if (
        largest == "update"
        and max(net.hidden_weights() for net in spec.agent.nets.values()) > FEW_WEIGHTS
    ):
        return "arithmetic: the products of the networks"
    return BOUNDS[largest]


def for_probing(spec: Spec) -> dict[str, Any]:
    """Keys for an endless training of `spec`: a short warm-up, no evaluations, no
    videos. It keeps only trainings that run at the same time. Schedules keep their
    frames."""
    keys: dict[str, Any] = {
        "env.max_frame": ENDLESS,
        "meta.max_run": 1,
        "meta.stop_return": None,
    }
    for decay in decays(spec.agent.model_dump(mode="json")):
        keys |= decay.frames
    keys |= {"meta.log_frequency": spec.log_frequency, "meta.rigorous_eval": 0}
    warm_up = getattr(spec.agent.algorithm, "training_start_step", 0)
    if warm_up:
        keys["agent.algorithm.training_start_step"] = min(warm_up, WARM_UP)
    if spec.meta.distributed is False and spec.meta.max_session > usable_cores():
        keys["meta.max_session"] = usable_cores()
    return {**keys, "meta.record_video": None}


@final
class SpeedMeter:
    """Measures each of the `counted` Sessions of a Trial between training events of its
    own, once all learn, and stops the Trial. A learner counts the frames of its actors.
    An agent that does not learn, or first learns after more than `slow` seconds, is
    measured from its first frames on."""

    def __init__(
        self, seconds: float, counted: slice, learns: bool, slow: float = inf
    ) -> None:
        self._seconds = seconds
        self._counted = counted
        self._learns = learns
        self._slow = slow
        self._start: FloatArray = np.zeros((1, 2))
        self._first: FloatArray | None = None
        self._began = time.perf_counter()
        self.is_over = self.is_late = False

    def __call__(self, board: StatusBoard) -> None:
        """To be called a few times a second."""
        now = time.perf_counter()
        loop = board.loop[self._counted].copy()
        seen = board.loop[self._counted].copy()
        seen[:, :2] = board.clock_slots[self._counted, None]
        seen[:, 2] = now
        loop = loop if self._learns else seen
        if not self._start[:, 1].all():
            self._start = seen
        if loop[:, 0].all() and not self.is_over:
            if self._first is None:
                self._first = (
                    self._start if now - self._start[0, 2] > self._slow else loop
                )
            self._passed = loop - self._first
            self.is_over = bool(self._passed[:, 2].min() >= self._seconds)
        self.is_late = not self.is_over and now - self._began > LATE_SECONDS
        if self.is_over or self.is_late:
            board.request_stop()

    @property
    def speed(self) -> Speed:
        """The sum of the counted Sessions' speeds, each over whole rollouts of its own.
        Between two events of one Session, others may have played less or more than they
        do on average."""
        _, frames, seconds, *_ = self._passed.T
        parts = self._passed[0, 3:] / seconds[0]
        shares = dict(
            zip((*LOOP_PARTS, REST), [*parts.tolist(), 1 - parts.sum()], strict=True)
        )
        return Speed(float((frames / seconds).sum()), shares if self._learns else {})
