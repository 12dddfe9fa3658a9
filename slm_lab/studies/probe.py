"""Short runs of a spec and of changes of its keys, which show what makes it faster
here."""

import importlib.util
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from slm_lab.core.process import stop_on_signals, usable_cores
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
from slm_lab.studies.requirements import check_machine
from slm_lab.studies.study import Agenda, Study
from slm_lab.studies.trial import Trial, TrialTask

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
"""With at most so many weights between hidden layers, calls take longer than their
products."""
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
    """Settings for `-s`."""

    sets: tuple[str, ...] = ()
    is_equivalent: bool = True
    """Whether the agent learns alike with them, up to rounding."""

    @property
    def learns(self) -> Literal["alike", "differently"]:
        """How the agent learns with them, in a word for the user."""
        if self.is_equivalent:
            return "alike"
        return "differently"

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


class Rate(NamedTuple):
    """How fast a spec trains with a change."""

    change: Change
    frames_per_s: float


def candidates(spec: Spec) -> Iterator[Change]:
    """The changes to try, some of which the spec may not allow."""
    yield from _with_another_vectorization(spec)
    threads = usable_cores() // spec.meta.num_sessions
    if threads > spec.meta.threads:
        yield Change((f"meta.threads={threads}",))
    yield from _with_faster_products(spec)
    yield from _parallel_changes(spec)
    for factor in ENV_FACTORS:
        yield from _with_more_envs(spec, factor)


def _with_another_vectorization(spec: Spec) -> Iterator[Change]:
    """The environments in processes of their own, or in EnvPool."""
    env = spec.env
    if env.num_envs > 1 and env.vectorization_mode != "async":
        yield Change(("env.vectorization_mode=async",))
    is_pooled = env.backend == "envpool" or env.vectorization_mode in ("sync", "async")
    if not is_pooled and importlib.util.find_spec("envpool") is not None:
        yield Change(("env.backend=envpool",), is_equivalent=False)


def _with_faster_products(spec: Spec) -> Iterator[Change]:
    """Half precision where the device has it, and products by NumPy."""
    nets = spec.agent.nets
    exact = [
        key for key, net in nets.items() if with_precision(net).precision == "float32"
    ]
    half = [key for key in exact if nets[key].multiplies_in_half]
    if half:
        sets = tuple(f"agent.{key}.precision=bf16" for key in half)
        yield Change(sets, is_equivalent=False)
    wide = [key for key, net in nets.items() if _multiplies_much(net)]
    if wide and spec.meta.threads == 1:
        yield Change(tuple(f"agent.{key}.matmul=numpy" for key in wide))


def _parallel_changes(spec: Spec) -> Iterator[Change]:
    """Each mode of parallel training on all cores, for a spec that trains on one."""
    cores = usable_cores()
    meta = spec.meta
    if cores == 1 or meta.max_session > 1 or meta.distributed is not False:
        return
    for word in MODES.names():
        mode = mode_of(word)
        workers = cores
        if mode.has_learner:
            workers = cores - 1
        sets = [f"meta.distributed={word}", f"meta.max_session={workers}"]
        if mode.has_ranks:
            sets.append("meta.scale=strong")
        yield Change(tuple(sets), is_equivalent=False)


def _with_more_envs(spec: Spec, factor: int) -> Iterator[Change]:
    """More environments, with as many gradient steps per frame. A replay algorithm has
    one training event per step of them at most."""
    algorithm = spec.agent.algorithm
    before = spec.env.num_envs
    sets = [f"env.num_envs={factor * before}"]
    if isinstance(algorithm, ReplayLearningSpec) and algorithm.update_to_data is None:
        interval = algorithm.training_frequency
        old = _frames_between_events(interval, before)
        new = _frames_between_events(interval, factor * before)
        batches, remainder = divmod(algorithm.training_batch_iter * new, old)
        if remainder:
            return
        if new != old:
            sets.append(f"agent.algorithm.training_batch_iter={batches}")
    yield Change(tuple(sets), is_equivalent=False)


def _frames_between_events(training_frequency: int, num_envs: int) -> int:
    """The frames between two training events: whole steps of all environments."""
    return num_envs * ceil(training_frequency / num_envs)


def _multiplies_much(net: NetSpec) -> bool:
    """Whether the time of a net goes into products of wide linear layers in float32 by
    torch. A net of images spends its time in convolutions."""
    if net.is_recurrent or net.NEEDS_IMAGES:
        return False
    if resolve_device(net.gpu).type != "cpu":
        return False
    if net.matmul != "torch" or net.precision != "float32":
        return False
    return max(of_role.hidden_weights() for of_role in net.for_roles) > FEW_WEIGHTS


@final
@dataclass(frozen=True)
class ProbeResult:
    """What `Probe.survey` has found about a spec, and then `Probe.verify`."""

    spec: Spec
    speeds: Mapping[Change, Speed]
    """The speeds of short runs."""
    verified: Mapping[Change, Speed] = field(default_factory=dict)
    """The speeds of longer runs; empty before these."""

    @property
    def predicted(self) -> list[Rate]:
        """The rates of short runs, as `rank_rates`."""
        return rank_rates(self.speeds)

    @property
    def measured(self) -> list[Rate]:
        """The rates of longer runs, as `rank_rates`."""
        return rank_rates(self.verified)

    @property
    def promising(self) -> list[Change]:
        """The changes that are worth longer runs."""
        return gains(self.predicted)[:BEST]

    @property
    def best(self) -> Change:
        """The first change that longer runs have shown to be a gain; else AS_IS."""
        if not self.verified:
            return AS_IS
        return next(iter(gains(self.measured)), AS_IS)

    @property
    def bound(self) -> str:
        """The bottleneck of the spec."""
        return bound(self.spec, self.speeds)

    def document(self) -> dict[str, Any]:
        """The result as JSON has it."""
        measured = dict(self.measured)
        return {
            **self.speeds[AS_IS]._asdict(),
            "measured": measured.get(AS_IS),
            "bound": self.bound,
            "changes": [
                {
                    "set": change.sets,
                    "predicted": frames_per_s,
                    "measured": measured.get(change),
                    "learns": change.learns,
                }
                for change, frames_per_s in self.predicted[1:]
            ],
            "set": self.best.sets,
            "learns": self.best.learns,
        }


@final
class Probe(Agenda):
    """A spec on this machine, and the changes that it allows; its runs are in
    `folder`."""

    def __init__(self, source: RunSource, folder: Path) -> None:
        """Raises SpecError and UsageError as `RunSource.load`."""
        super().__init__()
        self._imports = source.imports
        self._folder = folder
        keys = probing_keys(source.load())
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
        """The result of each run that did not fail."""
        self._deadline: float | None = None
        """The time after which a survey begins no more changes. None while changes are
        verified, because all of them must run."""
        self._study = Study(self, SerialSlot(self._train))

    @property
    def changes(self) -> list[Change]:
        """The changes that the spec and this machine allow."""
        return list(self._specs)[1:]

    @property
    def most_runs(self) -> int:
        """The most runs of a survey."""
        count = len(self.changes)
        return count + 2 + min(count, BEST)

    def survey(self, on_run: Callable[[int], None]) -> dict[Change, Speed]:
        """Runs the spec as it is and each change for a short time. Then runs the BEST
        changes and the spec again, because the fastest of several runs is often fast by
        chance. `on_run` gets the number of each run. Leaves out changes that cannot be
        run, and starts none after SURVEY_SECONDS. Raises LabError if the unchanged spec
        fails, KeyboardInterrupt if the user stops it."""
        self._on_run = on_run
        self._deadline = time.perf_counter() + SURVEY_SECONDS
        first = self._measure(self._specs, SHORT_SECONDS)
        best = gains(rank_rates(_means(first)))[:BEST]
        second = self._measure([*best, AS_IS], SHORT_SECONDS)
        return _means([*first, *second])

    def verify(self, changes: Sequence[Change]) -> dict[Change, Speed]:
        """Longer runs of changes, between two of the unchanged spec. Raises as
        `survey`, also if a change fails."""
        self._on_run = lambda number: None
        self._deadline = None
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
        if change != AS_IS and self._is_over_time():
            raise LabError("there is no time left for it")
        spec = self._specs[change]
        run_dir = RunDir.create(self._folder, spec.name, datetime.now())
        return TrialTask(spec, run_dir, 0, imports=self._imports)

    @override
    def conclude(self, state: TrialState) -> None:
        is_survey = self._deadline is not None
        may_fail = is_survey and self._turns[state.trial] != AS_IS
        if state.error is not None and not may_fail:
            raise LabError(state.error)

    def _is_over_time(self) -> bool:
        return self._deadline is not None and time.perf_counter() >= self._deadline

    def _train(self, trial: int, task: TrialTask) -> TrialEnd:
        self._speeds.append((self._turns[trial], measure(task, self._seconds)))
        return TrialEnd(Ending.FINISHED, {})


def measure(task: TrialTask, seconds: float) -> Speed:
    """The speed of a training, as `train_for`; deletes its folder."""
    speed = train_for(task, seconds)
    shutil.rmtree(task.run_dir.root)
    return speed


def train_for(task: TrialTask, seconds: float) -> Speed:
    """Runs a training for `seconds` after its start. Raises LabError if it fails,
    KeyboardInterrupt if the user stops it."""
    counted = slice(None)
    if task.spec.meta.mode.has_learner:
        counted = slice(1)
    algorithm = task.spec.agent.algorithm
    slow = SLOW_SECONDS
    if algorithm.replays:
        slow = inf
    meter = SpeedMeter(seconds, counted, learns=algorithm.NEEDS_NET, slow=slow)
    trial = Trial(task)
    with stop_on_signals(trial.status_board.request_stop):
        results = trial.train(lambda: meter(trial.status_board))
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
    by_change = defaultdict[Change, list[Speed]](list)
    for change, speed in turns:
        by_change[change].append(speed)
    means = {}
    for change, speeds in by_change.items():
        rate = fmean(speed.frames_per_s for speed in speeds)
        means[change] = Speed(rate, speeds[0].shares)
    return means


def rank_rates(speeds: Mapping[Change, Speed]) -> list[Rate]:
    """The rates of changes. AS_IS comes first, then changes with which the agent learns
    alike, then the others. Each group has the fastest first."""
    rates = [Rate(change, speed.frames_per_s) for change, speed in speeds.items()]
    return sorted(rates, key=_place_in_order)


def _place_in_order(rate: Rate) -> tuple[bool, bool, float]:
    is_change = rate.change != AS_IS
    learns_differently = not rate.change.is_equivalent
    return (is_change, learns_differently, -rate.frames_per_s)


def ratios(rates: Sequence[Rate]) -> list[float]:
    """How many times as fast as AS_IS the changes in the result of `rank_rates` are."""
    return [rate.frames_per_s / rates[0].frames_per_s for rate in rates]


def gains(rates: Sequence[Rate]) -> list[Change]:
    """The changes in the result of `rank_rates` that are faster than AS_IS by WORTH."""
    least = WORTH * rates[0].frames_per_s
    return [rate.change for rate in rates if rate.frames_per_s > least]


def bound(spec: Spec, speeds: Mapping[Change, Speed]) -> str:
    """The bottleneck of the spec, from `Probe.survey`."""
    base = speeds[AS_IS]
    cores = usable_cores()
    if spec.meta.num_sessions * spec.meta.threads > cores:
        return f"the cores: {spec.meta.num_sessions} Sessions share {cores}"
    if not base.shares:
        return "the environment: the agent does not learn"
    largest = max(base.shares, key=lambda part: base.shares[part])
    if largest == REST:
        return _bound_outside(spec)
    most_weights = max(net.hidden_weights() for net in spec.agent.nets.values())
    if largest == "update" and most_weights > FEW_WEIGHTS:
        return "arithmetic: the products of the networks"
    return BOUNDS[largest]


def _bound_outside(spec: Spec) -> str:
    """The bottleneck of a training that spends its time outside of LOOP_PARTS."""
    if spec.meta.mode.has_learner:
        return "the actors: the learner waits for their steps"
    if spec.meta.distributed is False:
        return "rows, or other programs"
    return "the exchange between processes"


def probing_keys(spec: Spec) -> dict[str, Any]:
    """Keys for an endless training of `spec`: a short warm-up, no evaluations, no
    videos. It keeps only trainings that run at the same time. Schedules keep their
    frames."""
    keys: dict[str, Any] = {
        "env.max_frame": ENDLESS,
        "meta.max_run": 1,
        "meta.stop_return": None,
    }
    for decay in decays(spec.to_json()):
        keys |= decay.frames
    keys |= {"meta.log_frequency": spec.log_frequency, "meta.rigorous_eval": 0}
    warm_up = getattr(spec.agent.algorithm, "training_start_step", 0)
    if warm_up:
        keys["agent.algorithm.training_start_step"] = min(warm_up, WARM_UP)
    if spec.meta.distributed is False and spec.meta.max_session > usable_cores():
        keys["meta.max_session"] = usable_cores()
    return {**keys, "meta.record_video": None}


class Progress(NamedTuple):
    """How far the counted Sessions of a Trial are; every array begins with (W,)."""

    counts: FloatArray
    """(W,): training events, or frames of Sessions that do not learn; 0 at first."""
    frames: FloatArray
    """(W,)"""
    seconds: FloatArray
    """(W,): the process's clock."""
    part_seconds: FloatArray
    """(W, P): the seconds in each of LOOP_PARTS until the last training event."""

    @classmethod
    def measure_events(cls, status_board: StatusBoard, counted: slice) -> "Progress":
        """The progress at the last training event of each Session."""
        loop = status_board.loop[counted].copy()
        return cls(
            counts=loop["events"],
            frames=loop["frames"],
            seconds=loop["seconds"],
            part_seconds=loop["part_seconds"],
        )

    @classmethod
    def measure_frames(
        cls, status_board: StatusBoard, counted: slice, now: float
    ) -> "Progress":
        """The progress at the last frame that each Session has played until `now`."""
        frames = status_board.clock_slots[counted].astype(float)
        return cls(
            counts=frames,
            frames=frames,
            seconds=np.full_like(frames, now),
            part_seconds=status_board.loop["part_seconds"][counted].copy(),
        )

    @property
    def has_begun(self) -> bool:
        """Whether all Sessions have counted something."""
        return bool(self.counts.all())

    def since(self, start: "Progress") -> "Progress":
        """The difference from an earlier progress."""
        return Progress(*(now - then for now, then in zip(self, start, strict=True)))


@final
class SpeedMeter:
    """Measures each of the `counted` Sessions of a Trial between its own training
    events, once all learn. Then it stops the Trial. A learner counts the frames of its
    actors. An agent that does not learn, or learns only after `slow` seconds, is
    measured from its first frames on."""

    def __init__(
        self, seconds: float, counted: slice, learns: bool, slow: float = inf
    ) -> None:
        self._seconds = seconds
        self._counted = counted
        self._learns = learns
        self._slow = slow
        self._first_frames: Progress | None = None
        """The progress when all Sessions had played a frame; None before."""
        self._start: Progress | None = None
        """The progress from which it measures; None before the measurement begins."""
        self._began = time.perf_counter()
        self.is_over = False
        self.is_late = False

    def __call__(self, status_board: StatusBoard) -> None:
        """Measures the progress so far. It must be called a few times a second."""
        now = time.perf_counter()
        played = Progress.measure_frames(status_board, self._counted, now)
        progress = played
        if self._learns:
            progress = Progress.measure_events(status_board, self._counted)
        if self._first_frames is None and played.has_begun:
            self._first_frames = played
        if progress.has_begun and not self.is_over:
            if self._start is None:
                self._start = self._choose_start(progress, now)
            self._passed = progress.since(self._start)
            self.is_over = bool(self._passed.seconds.min() >= self._seconds)
        self.is_late = not self.is_over and now - self._began > LATE_SECONDS
        if self.is_over or self.is_late:
            status_board.request_stop()

    def _choose_start(self, progress: Progress, now: float) -> Progress:
        """The first frames, if it took long from there to this first progress."""
        first_frames = self._first_frames
        if first_frames is None or now - first_frames.seconds[0] <= self._slow:
            return progress
        return first_frames

    @property
    def speed(self) -> Speed:
        """The sum of the counted Sessions' speeds, each over whole rollouts of its own.
        Between two events of one Session, others may have played less or more than they
        do on average."""
        passed = self._passed
        frames_per_s = float((passed.frames / passed.seconds).sum())
        if not self._learns:
            return Speed(frames_per_s, {})
        parts = passed.part_seconds[0] / passed.seconds[0]
        shares = dict(zip(LOOP_PARTS, parts.tolist(), strict=True))
        shares[REST] = float(1 - parts.sum())
        return Speed(frames_per_s, shares)
