"""One agent in one vectorised environment, under one seed."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from slm_lab.core.errors import NonFiniteLossError
from slm_lab.core.text import significant
from slm_lab.core.types import StateDict
from slm_lab.env.vector_env import NO_EPISODES, FinishedEpisodes
from slm_lab.session.initial import begin_with
from slm_lab.session.pace import UPDATE
from slm_lab.session.parts import (
    AgentChecks,
    build_parts,
    open_rows,
    restore,
    take_over,
)
from slm_lab.session.seeding import SessionSeeds
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.session.strategy import Strategy, Vote, independent
from slm_lab.session.video import VideoRecorder
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.checkpoint import try_state
from slm_lab.storage.result import Ending, SessionResult
from slm_lab.storage.run_dir import SessionPaths

logger = logging.getLogger(__name__)


class Session:
    """The RL loop: act, step, observe, learn, evaluate, track and checkpoint. Writes
    rows and checkpoints under `paths`, progress to `status_board`. `resume` continues
    from the newest checkpoint there, bit-identical if the environment's state can be
    saved. `checked` turns on the checks of the dev mode. `on_row` is called after each
    row, inside this process. `replaces` is the reason why an earlier process of this
    Session died. At the total frame `until` it saves and stops, as if the user had
    stopped it."""

    def __init__(
        self,
        spec: Spec,
        index: int,
        seeds: SessionSeeds,
        paths: SessionPaths,
        status_board: StatusBoard,
        resume: bool = False,
        checked: bool = False,
        on_row: Callable[["Session"], None] | None = None,
        strategy: Strategy | None = None,
        replaces: str | None = None,
        until: int | None = None,
    ) -> None:
        self.spec = spec
        self.index = index
        self.paths = paths
        self.strategy = strategy or independent(status_board, index)
        self.parts = parts = build_parts(
            spec,
            index,
            seeds,
            paths,
            strategy=self.strategy,
            marks=status_board.marks_of(index),
        )
        self.env = parts.env
        self.agent = parts.agent
        self.clock = parts.clock
        self.tracker = parts.tracker
        self.records = parts.records
        self._evaluation = parts.evaluation
        self._stopwatch = parts.stopwatch
        self.status_board = status_board
        self._on_row = on_row
        self._until = until
        self._granted_end: Vote | None = None
        self._has_tried_to_save = False
        self._update_seconds = 0.0
        self._num_events = 0
        manifest = None
        if resume or replaces is not None:
            manifest = self.records.store.manifest()
        if manifest is not None:
            restore(parts, manifest)
        else:
            rewards = spec.env.normalize_reward
            begin_with(paths.initial, self.agent, self.env.statistics, rewards)
        self._checks = AgentChecks(self.agent) if checked else None
        open_rows(parts, manifest, replaces)
        if replaces is not None:
            logger.warning("Session %d is replaced: %s", index, replaces)
            take_over(parts, manifest)
        self._is_fresh = manifest is None and replaces is None
        self._next_kept = self._kept_frame_after(self.clock.total_frame)
        """The total frame at which the next checkpoint is kept; infinite for none."""
        self._joined_at = 0
        """The total frame of the last joint checkpoint of this process."""
        self.strategy.join(self.agent, self.env)
        if manifest is None:
            self.agent.learner.weights_replaced()

    def run(self) -> SessionResult:
        """Trains until the budget is spent, the target return is reached, or a stop is
        requested. Raises NonFiniteLossError with the state saved beside the last good
        checkpoint."""
        strategy = self.strategy
        experience = self.parts.experience
        self._begin()
        try:
            while not self._is_over():
                if strategy.checkpoint.is_requested:
                    self._save_jointly()
                    continue  # it may have been the last thing to do
                strategy.refresh()
                finished = experience.step()  # act, step, observe: see `Acting`
                if finished is not None:
                    self._track(finished)
                    strategy.episodes.send(finished)
                self._after_step()
        except NonFiniteLossError as error:
            saved = self.records.save_copy(self.clock.frame, self.parts.state_dict())
            raise NonFiniteLossError(f"{error}\n{saved}") from error
        except Exception as error:
            if self.parts.has_failed_env and self.clock.frame > 0:
                self._save_after(error)
            raise
        return self._end()

    def close(self) -> None:
        """Frees the environments and the files of rows."""
        self.parts.close()

    def _begin(self) -> None:
        """Waits for peers, then starts fresh episodes or continues the saved ones."""
        self.strategy.barrier.wait_for_start()
        self.strategy.pace.join()
        self._stopwatch.start()
        self.records.saved_at = time.perf_counter()
        self.strategy.barrier.resume()
        self.status_board.write(self.index, phase=Phase.RUNNING)
        self._show()
        how = "starting" if self._is_fresh else "resuming"
        logger.info("%s at frame %d", how, self.clock.frame)
        if self._is_fresh:
            self.parts.experience.begin()
        else:
            self._after_step()  # repeats what a stop or a vote interrupted

    def _after_step(self) -> None:
        """Learns, evaluates, films and tracks, if due. A repeated call does only what
        is still due. So a Session that was saved during a vote resumes with what it had
        voted for."""
        frame = self.clock.frame
        evaluation = self._evaluation
        video = self.parts.video
        if self.agent.is_due:
            if not self._agree_on(Vote.LEARN):
                return
            self._learn()
        if not self.strategy.blueprint.leads:
            return
        if evaluation is not None and evaluation.tracker.due(frame):
            self._propose_evaluation()
        if video is not None and video.due(frame):
            self._record(video)
        is_keep_due = self._is_keep_due
        keeps_here = is_keep_due and self.strategy.checkpoint.saves_at_rows
        if self.tracker.due(frame):
            self._log_row(save=not keeps_here)
        if not is_keep_due:
            return
        if not keeps_here:
            self.strategy.checkpoint.ask()
        elif self._agree_on(Vote.KEEP):
            self._save(finished=False, keep=True)

    @property
    def _is_keep_due(self) -> bool:
        """Whether a frame of `meta.keep_checkpoints` has been reached since the last
        checkpoint that is kept."""
        return self.clock.total_frame >= self._next_kept

    def _kept_frame_after(self, total_frame: int) -> float:
        """The next frame of `meta.keep_checkpoints`; infinite after the last."""
        later = (frame for frame in self.spec.kept_frames if frame > total_frame)
        return min(later, default=math.inf)

    def _track(self, finished: FinishedEpisodes) -> None:
        if self.strategy.blueprint.leads:  # rows empty the list of returns
            self.tracker.track_episodes(*finished, self.clock.total_frame)

    def _save_after(self, error: Exception) -> None:
        """Saves what a stop would save, after an `error` of an environment."""
        try:
            self._agree_on(Vote.STOP)
            self._end()
            error.add_note(f"the state is saved at frame {self.clock.frame}")
        except Exception:  # the environment's error matters more
            logger.exception("the state after the failure cannot be saved")

    def _try_to_save(self) -> None:
        """Raises CheckpointError if the state cannot be saved: now, not after hours of
        training."""
        if not self._has_tried_to_save:
            try_state(self.parts.state_dict())
            self._has_tried_to_save = True

    def _learn(self) -> None:
        self._try_to_save()
        for finished in self.strategy.episodes.received():
            self._track(finished)
        self.strategy.refresh()
        group = self.agent.learner.train_state.group
        began = time.perf_counter() - group.seconds  # its exchanges do not count
        self.status_board.learning[self.index] = 1
        self.strategy.pace.begin()
        report = self.agent.learn(self.clock.total_frame)
        self.strategy.pace.passed(UPDATE)
        self.status_board.learning[self.index] = 0
        assert report is not None
        now = time.perf_counter()
        self._update_seconds += now - group.seconds - began
        self._num_events += 1
        loop = self.status_board.loop[self.index]
        loop["events"] = self._num_events
        loop["frames"] = self.status_board.clock_slots[self.index]
        loop["seconds"] = now
        loop["part_seconds"] = (*self.parts.experience.seconds, self._update_seconds)
        cpu_t = self._stopwatch.read().cpu_t
        self.tracker.track_update(self.strategy.learned(report, cpu_t))
        if self._checks is not None:
            self._checks.after_learning()

    def _agree_on(self, vote: Vote) -> bool:
        """Proposes `vote` until it is granted, and executes the votes that are granted
        before it. Returns whether it was granted: False if the end is granted instead,
        or if FINISH is not due yet."""
        while True:
            granted = self.strategy.ballot.agree(vote, self.agent.num_samples)
            if granted is vote:
                return True
            if granted.is_end:
                self._granted_end = granted
                return False
            if granted in (Vote.SAVE, Vote.KEEP):
                self._save(finished=False, keep=granted is Vote.KEEP)
            elif granted is Vote.EVALUATE:
                self._evaluate()
            elif vote is Vote.FINISH:  # granted was ACT
                return False

    def _is_over(self) -> bool:
        if self._granted_end is None and (
            self.clock.exhausted
            or self.status_board.stop_requested
            or self._solved()
            or self.parts.experience.has_ended
            or (self._is_at_until and self._may_stop_at_until())
        ):
            finished = self.clock.exhausted or self._solved()
            vote = Vote.STOP
            if finished:
                vote = Vote.FINISH
            if self._agree_on(vote):
                self._granted_end = vote
        return self._granted_end is not None

    @property
    def _is_at_until(self) -> bool:
        return self._until is not None and self.clock.total_frame >= self._until

    def _may_stop_at_until(self) -> bool:
        """Whether all that a stop at `until` needs is done. Stops the peers, or asks
        for the joint checkpoint that has yet to be made."""
        if not self.strategy.checkpoint.ends_jointly:
            self.strategy.ballot.stop_peers()
            return True
        if self._until is not None and self._joined_at >= self._until:
            return True
        self.strategy.checkpoint.ask()
        return False

    def _end(self) -> SessionResult:
        finished = self._granted_end is Vote.FINISH
        if finished and self.strategy.blueprint.leads:
            finished = self._write_last_rows()
        end = Vote.STOP
        if finished:
            end = Vote.FINISH
        finished = self._agree_on(end) and finished
        state = self.strategy.checkpoint.final_state(self.parts.state_dict, finished)
        self._save(finished, state, keep=finished and self._is_keep_due)
        if finished and self._checks is not None:
            self._checks.at_end()
        ending = Ending.INTERRUPTED
        if finished:
            ending = Ending.FINISHED
        error = None
        is_meant = finished or self.status_board.stop_requested or self._is_at_until
        if self.parts.experience.has_ended and not is_meant:
            ending = Ending.FAILED
            error = f"no actor is left; the state is saved at frame {self.clock.frame}"
        logger.info(
            "%s at frame %d after %.1f s",
            ending,
            self.clock.frame,
            self._stopwatch.read().wall_t,
        )
        return SessionResult(self.index, ending, self.clock.frame, error)

    def _solved(self) -> bool:
        target = self.spec.meta.stop_return
        best = self.tracker.best_return
        if target is None:
            return False
        if best is not None and best >= target:
            self.strategy.ballot.declare_solved()
            return True
        return self.strategy.ballot.solved

    def _write_last_rows(self) -> bool:
        frame = self.clock.frame
        evaluation = self._evaluation
        video = self.parts.video
        if (
            evaluation
            and frame > evaluation.tracker.last_frame
            and not self._propose_evaluation()
        ):
            return False
        if video is not None and video.is_missing(frame):
            self._record(video)
        if frame > self.tracker.last_frame:
            self._log_row(save=False)
        return True

    def _propose_evaluation(self) -> bool:
        return self._agree_on(Vote.EVALUATE) and self._evaluate()

    def _evaluate(self) -> bool:
        """Writes one evaluation row and keeps the best agent. It precedes the training
        row of the same frame, so that the checkpoint there includes it. False if a stop
        was requested: the evaluation is dropped, and repeated on resume."""
        evaluation = self._evaluation
        with self._paused() as snapshot:
            played: FinishedEpisodes | None = NO_EPISODES
            try:
                if evaluation is not None:
                    played = evaluation.play(snapshot, self._poll_stop)
            except Exception:
                self.strategy.episodes.gather_evaluation(None)  # peers wait for it
                raise
            episodes = self.strategy.episodes.gather_evaluation(played)
        if episodes is None:
            if evaluation is not None:
                evaluation.take_back()
            return False
        if evaluation is None or not self.strategy.blueprint.leads:
            return True
        row = self.parts.eval_row(episodes)
        self.records.append(self.paths.eval_rows.name, row)
        if evaluation.tracker.improved:
            self.records.best = {
                **snapshot,
                "eval_return": evaluation.tracker.best_return,
            }
        return True

    def _record(self, video: VideoRecorder) -> None:
        with self._paused() as snapshot:
            video.record(snapshot, self._poll_stop)

    def _poll_stop(self) -> bool:
        """Counts a heartbeat at each step of an episode outside training; returns
        whether a stop is requested."""
        self.status_board.heartbeats[self.index] += 1
        return self.status_board.stop_requested

    @contextmanager
    def _paused(self) -> Iterator[StateDict]:
        """Yields a snapshot of the agent for work outside training. The time of this
        work is not counted, and no peer waits for this Session."""
        with self._stopwatch.paused():
            snapshot = self.parts.snapshot()
            self.strategy.barrier.pause()
            yield snapshot
            self.strategy.barrier.resume()

    def _log_row(self, save: bool = True) -> None:
        """Writes a row, keeps the best agent, and saves if the last checkpoint is old
        enough."""
        row = self.parts.row()
        self.records.append(self.paths.rows.name, row)
        if self.tracker.improved and self._evaluation is None:
            best = self.tracker.best_return
            self.records.best = {**self.parts.snapshot(), "recent_return": best}
        self._show()
        if self._on_row is not None:
            self._on_row(self)
        due = (
            time.perf_counter() - self.records.saved_at >= self.spec.meta.save_interval
        )
        if (
            save
            and due
            and self.strategy.checkpoint.saves_at_rows
            and self._agree_on(Vote.SAVE)
        ):
            self._save(finished=False)

    def _show(self) -> None:
        self.status_board.write(self.index, **self.parts.progress())

    def _save_jointly(self) -> None:
        began = time.perf_counter()
        state = self.strategy.checkpoint.joint_state(self.parts.state_dict)
        if state is not None:
            self._save(False, state, keep=self._is_keep_due)
            self._joined_at = self.clock.total_frame
            self.status_board.paused_us[self.index] = int(
                1e6 * (time.perf_counter() - began)
            )

    def _save(
        self, finished: bool, state: StateDict | None = None, keep: bool = False
    ) -> None:
        """Writes a checkpoint of the present state, or of `state`, a copy made
        jointly; `keep` keeps it for forks."""
        self.status_board.heartbeats[self.index] += 1
        self.status_board.saving[self.index] = 1
        try:
            state = self.parts.state_dict() if state is None else state
            frame = self.clock.frame
            kept_at = self.clock.total_frame if keep else None
            parts = self.records.save(
                frame,
                state,
                log=self.agent.log,
                finished=finished,
                commit_barrier=self.strategy.checkpoint.commit_barrier,
                kept_at=kept_at,
            )
            if kept_at is not None:
                self._next_kept = self._kept_frame_after(kept_at)
        finally:
            self.status_board.saving[self.index] = 0
        result = significant(self.status_board.read(self.index).recent_return)
        logger.info(
            "checkpoint at frame %d: %s; return %s", frame, ", ".join(parts), result
        )
