"""The contract of a mode of parallel training, run by its launcher in processes."""

import copy
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from torch import Tensor

from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.records.checkpoints import TrialCheckpoints
from slm_lab.session.status_board import StatusBoard
from slm_lab.spec.load import parse_spec
from slm_lab.spec.modes import Mode, mode_of
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.checkpoint import CheckpointStore
from slm_lab.storage.result import Ending, SessionResult
from slm_lab.storage.run_dir import FOLDERS, RunDir
from slm_lab.studies.fork import copy_start
from slm_lab.studies.trial import Trial, TrialTask
from slm_lab.testing.contract import Contract
from slm_lab.testing.sessions import (
    WholeRun,
    difference,
    difference_of_vectors,
    read_rows,
    whole_run,
)


@dataclass(frozen=True)
class ModeCase:
    """A mode and a small spec to train in it. The spec is a block with `agent` and
    `env`, as in a spec file. One second must not be enough for `max_frame` frames."""

    word: str
    """The value of `meta.distributed`."""
    data: dict[str, Any]
    """The spec; keys of `meta` that the tests need are set by them."""
    keys: dict[str, Any] = field(default_factory=dict)
    """The keys of its block `meta.<word>`."""
    one_is_none: bool = True
    """Whether one member trains as a Session without the mode does, bit for bit."""
    repeats: bool = True
    """Whether two members train alike each time; not if they run in no fixed order."""
    timed: tuple[str, ...] = ()
    """Columns of the mode that depend on the machine's speed."""
    imports: tuple[str, ...] = ()
    """Modules that the members' processes import first, such as the package with the
    mode, if it is not installed."""
    max_frame: int = 8000
    """Frames of a whole training."""
    stop_seconds: float = 30.0
    """The longest time of a stop, in seconds."""

    @property
    def mode(self) -> Mode:
        """The facts about the mode."""
        return mode_of(self.word)

    def spec(self, members: int | None) -> Spec:
        """The spec for so many members of the mode; None: without the mode. Raises
        SpecError."""
        meta: dict[str, Any] = {
            "distributed": False,
            "log_frequency": self.max_frame // 8,
            "keep_checkpoints": 2,
            "max_session": 1,
            "save_interval": 0,
        }
        if members is not None:
            meta |= {"distributed": self.word, "max_session": members}
            if self.keys:
                meta[self.word] = self.keys
        data = copy.deepcopy(self.data)
        data["env"]["max_frame"] = self.max_frame
        data["meta"] = {**data.get("meta", {}), **meta}
        return parse_spec("small", data)


@dataclass(frozen=True)
class TrainedMembers:
    """A training of some members, as their files show it."""

    spec: Spec
    run_dir: RunDir
    results: list[SessionResult]
    seconds_to_stop: float | None = None
    """The seconds from the request to stop until the end; None without a request."""

    @property
    def endings(self) -> list[str]:
        """How each member ended, with its error."""
        return [result.error or str(result.ending) for result in self.results]

    def state(self, session: int) -> Any:
        """The agent of a member in its newest checkpoint; None if it has none."""
        paths = self.run_dir.session(0, session)
        store = CheckpointStore(paths.models, paths.prefix)
        manifest = store.manifest()
        if manifest is None:
            return None
        return store.load(manifest)["agent"]

    def networks(self, session: int) -> dict[str, Tensor]:
        """The flat vectors of a member's networks."""
        networks = self.state(session)["learner"]["train_state"]
        return {name: state["flat"]["vector"] for name, state in networks.items()}

    def as_run(self) -> WholeRun:
        """The first member's rows and networks."""
        return WholeRun(
            rows=read_rows(self.run_dir.session(0, 0).rows),
            vectors=self.networks(0),
            drew_from_global_generators=False,
            opt_step=0,
        )


def train(
    case: ModeCase,
    members: int,
    folder: Path,
    *,
    resume: bool = False,
    stop_at: float = float("inf"),
    until: int | None = None,
) -> TrainedMembers:
    """Trains as `slm-lab run` does, without graphs, and requests a stop after `stop_at`
    frames. Or it ends at the total frame `until`, as the replay of a fork does."""
    spec = case.spec(members)
    run_dir = RunDir(folder, spec.name)
    for part in FOLDERS:
        (folder / part).mkdir(parents=True, exist_ok=True)
    status_board = StatusBoard.allocate(
        CONTEXT, spec.meta.num_sessions, spec.most_copies
    )
    task = TrialTask(
        spec,
        run_dir,
        root_seed=0,
        resume=resume,
        imports=case.imports,
        until=until,
    )
    requested: list[float] = []

    def on_tick() -> None:
        if not requested and status_board.clock_slots.sum() >= stop_at:
            requested.append(time.monotonic())
            status_board.request_stop()

    results = Trial(task, status_board=status_board).train(on_tick)
    seconds = time.monotonic() - requested[0] if requested else None
    return TrainedMembers(spec, run_dir, results, seconds)


class ModeContract(Contract):
    """The tests that every mode passes. `cases` are `ModeCase`s. Their processes need
    seconds."""

    cases: ClassVar[dict[str, ModeCase]]

    @pytest.fixture
    def whole(self, case: ModeCase, tmp_path: Path) -> TrainedMembers:
        """An uninterrupted training of as many members as can be repeated."""
        training = train(case, self.members(case), tmp_path / "whole")
        self.check_finished(case, training)
        return training

    def members(self, case: ModeCase) -> int:
        """Two members, or one where two run in no fixed order."""
        return 2 if case.repeats else 1

    def check_finished(self, case: ModeCase, training: TrainedMembers) -> None:
        """Checks that all members have ended well."""
        assert set(training.endings) == {Ending.FINISHED}, (
            f"not all members of {case.word} trained to the end of the budget, they "
            f"ended so: {training.endings}; mend what the first of them says"
        )

    def test_its_block_is_accepted(self, case: ModeCase) -> None:
        assert case.spec(2).meta.mode is case.mode, (
            f'meta.distributed: "{case.word}" is another mode: give Mode.word the name '
            "that is registered"
        )

    def test_one_member_trains_as_none(
        self,
        case: ModeCase,
        tmp_path: Path,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        if not case.one_is_none:
            pytest.skip("the case says one_is_none=False")
        member = train(case, 1, tmp_path)
        self.check_finished(case, member)
        alone = whole_run(tmp_path_factory, case.spec(None))
        added = map(str, set(member.as_run().rows) - set(alone.rows))
        differing = difference(member.as_run(), alone, without=added)
        assert not differing, (
            f"one member of {case.word} differs from a Session without it "
            f"{differing}: with one worker, a mode must change nothing"
        )

    def test_members_spend_the_budget(self, case: ModeCase, tmp_path: Path) -> None:
        training = train(case, 2, tmp_path)
        self.check_finished(case, training)
        writers = training.spec.meta.writers
        rows = [read_rows(training.run_dir.session(0, w).rows) for w in writers]
        assert all(len(table) > 0 for table in rows), (
            f"a member of {case.word} wrote no rows: let Blueprint.leads be True for "
            "those that meta.writers names"
        )
        frames = max(table["total_frame"].iloc[-1] for table in rows)
        assert frames >= case.max_frame, (
            f"{case.word} ended after {frames} of {case.max_frame} frames: finish when "
            "the frames of Blueprint.clock_slots have reached the budget"
        )
        if case.mode.has_ranks:
            first, second = (training.networks(session) for session in range(2))
            differing = difference_of_vectors(first, second)
            assert not differing, (
                f"the ranks of {case.word} end with other weights in {differing}: "
                "make them equal in before_end"
            )

    def test_it_stops_in_time_and_resumes(
        self, case: ModeCase, whole: TrainedMembers, tmp_path: Path
    ) -> None:
        members = self.members(case)
        folder = tmp_path / "cut"
        stopped = train(case, members, folder, stop_at=case.max_frame // 8)
        seconds = stopped.seconds_to_stop
        early = f"{case.word} ended before it could be stopped: give more max_frame"
        assert seconds is not None, early
        assert set(stopped.endings) <= {Ending.INTERRUPTED, Ending.FINISHED}, (
            f"the members of {case.word} were stopped and ended so: "
            f"{stopped.endings}; they must save and end"
        )
        assert Ending.INTERRUPTED in stopped.endings, early
        assert seconds < case.stop_seconds, (
            f"a stop of {case.word} took {seconds:.0f} s: end when the status board "
            "says stop_requested, and wait for peers with a limit"
        )
        assert stopped.state(0) is not None, (
            f"{case.word} was stopped and saved no checkpoint: save before the end"
        )
        resumed = train(case, members, folder, resume=True)
        self.check_finished(case, resumed)
        differing = difference(resumed.as_run(), whole.as_run(), case.timed)
        assert not differing, (
            f"a resumed training of {case.word} differs from an uninterrupted one "
            f"{differing}: Strategy.state_dict must hold all that later steps depend on"
        )

    def test_a_fork_repeats_it(
        self, case: ModeCase, whole: TrainedMembers, tmp_path: Path
    ) -> None:
        """The fork begins from the checkpoint at half of the budget, with a replay up
        to three quarters."""
        members = self.members(case)
        frame = 3 * case.max_frame // 4
        meta = whole.spec.meta
        (sessions,) = meta.trainings
        start = TrialCheckpoints(whole.run_dir, 0).nearest(meta, sessions, frame)
        assert case.max_frame // 2 <= start.total_frame < frame, (
            f"{case.word} kept no checkpoint at half of its budget, but at frame "
            f"{start.total_frame}: grant Vote.KEEP to all members, or let the parent "
            "request a checkpoint"
        )
        folder = tmp_path / "fork"
        for part in FOLDERS:
            (folder / part).mkdir(parents=True, exist_ok=True)
        copy_start(start, whole.run_dir, RunDir(folder, whole.spec.name))
        replayed = train(case, members, folder, resume=True, until=frame)
        assert set(replayed.endings) == {Ending.INTERRUPTED}, (
            f"the members of {case.word} were replayed and ended so: "
            f"{replayed.endings}; a vote to stop ends all of them"
        )
        fork = train(case, members, folder, resume=True)
        self.check_finished(case, fork)
        differing = difference(fork.as_run(), whole.as_run(), case.timed)
        assert not differing, (
            f"a fork of {case.word} differs from the training that it leaves "
            f"{differing}: Strategy.state_dict must hold all that later steps depend on"
        )

    def test_it_can_be_repeated(
        self, case: ModeCase, whole: TrainedMembers, tmp_path: Path
    ) -> None:
        again = train(case, self.members(case), tmp_path / "again")
        differing = difference(again.as_run(), whole.as_run(), case.timed)
        assert not differing, (
            f"two trainings of {case.word} of one seed differ {differing}: let members "
            "wait for each other, or say repeats=False"
        )
