"""The spine of the lab: one agent in one vectorised environment, under one seed."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.core.errors import NonFiniteLossError
from slm_lab.core.types import StateDict
from slm_lab.env.make import make_env
from slm_lab.env.step import NO_EPISODES, FinishedEpisodes
from slm_lab.experiment.check import AgentChecks
from slm_lab.experiment.checkpoint import reading
from slm_lab.experiment.crew import Alone, Crew, Wish
from slm_lab.experiment.evaluate import snapshot_of
from slm_lab.experiment.fit import check_fits, check_optimizers
from slm_lab.experiment.manifest import Manifest
from slm_lab.experiment.progress import Board, Flow, Phase
from slm_lab.experiment.records import Records
from slm_lab.experiment.result import Ending, SessionResult
from slm_lab.experiment.rigorous_eval import RigorousEval
from slm_lab.experiment.run_dir import SessionPaths
from slm_lab.experiment.seeding import SessionSeeds
from slm_lab.experiment.stopwatch import Stopwatch
from slm_lab.experiment.video import VideoRecorder
from slm_lab.metrics.reader import NO_ROWS, read_rows
from slm_lab.metrics.tracker import Tracker
from slm_lab.metrics.writer import RowFiles
from slm_lab.spec.schema.spec import Spec

logger = logging.getLogger(__name__)


class Session:
    """The RL loop: act, step, observe, learn, evaluate, track, checkpoint, till frames are spent.

    Writes its rows and checkpoints under `paths`, its progress to `board`. `resume` continues from
    the newest checkpoint there, bit for bit where the environment's state can be saved. `checked`
    has the agent watched, as in the dev mode. `on_row` is called after each row, for callers that
    watch from inside the process.
    """

    def __init__(
        self,
        spec: Spec,
        index: int,
        seeds: SessionSeeds,
        paths: SessionPaths,
        board: Board,
        resume: bool = False,
        checked: bool = False,
        on_row: Callable[["Session"], None] | None = None,
        crew: Crew | None = None,
        replaces: str | None = None,
    ) -> None:
        self.spec = spec
        self.index = index
        self.paths = paths
        gamma = spec.agent.algorithm.gamma or 1.0  # none: the Random agent discounts nothing
        self._crew = Alone(board, index) if crew is None else crew
        self.env = make_env(self._crew.env_spec(spec.env), seeds.env, gamma=gamma)
        self.agent = build_agent(
            spec.agent,
            self.env.observation_space,
            self.env.action_space,
            spec.env.num_envs,
            AgentSeeds(seeds.init, seeds.action, seeds.sampling),
            scratch=paths.models,
            frame_stack=self.env.frame_stack,
            correction=self._crew.correction,
            normalization=self.env.normalization,
            make_memory=self._crew.make_memory,
        )
        self.clock = self._crew.clock(spec.env.max_frame)
        self._experience = self._crew.experience(spec, self.agent, self.env, self.clock)
        columns_added = (*self.agent.learner.metric_names, *self._crew.columns)
        num_envs = spec.env.num_envs * self._crew.size
        self.tracker = Tracker(
            num_envs,
            spec.log_frequency,
            spec.env.max_frame,
            columns_added,
            spec.meta.writers_per_training,
        )
        played = self._crew.part_of(spec.meta.rigorous_eval)
        self._evaluation = RigorousEval(spec, played, seeds.rigorous_eval) if played else None
        self._video = None
        if spec.meta.record_video is not None and spec.meta.is_first_of_training(index):
            self._video = VideoRecorder(spec, seeds.video, paths)
        self._board = board
        self._on_row = on_row
        self._checks = AgentChecks(self.agent) if checked else None
        self.records = Records(paths)
        self._granted_end: Wish | None = None
        self._stopwatch = Stopwatch()
        manifest = self.records.manifest() if resume or replaces is not None else None
        if manifest is not None:
            self._restore(manifest)
        extents = None if manifest is None else manifest.rows
        columns = {}
        if self._crew.leads:
            columns[paths.rows.name] = self.tracker.columns
        if self._crew.leads and self._evaluation is not None:
            columns[paths.eval_rows.name] = self._evaluation.tracker.columns
        if replaces is not None:
            logger.warning("Session %d is replaced: %s", index, replaces)
            extents = RowFiles.whole_lines(paths.info, columns, self.clock.frame)
        self.records.open(columns, extents, self.clock.frame)
        if replaces is not None:
            self._take_over(manifest)
        self._is_fresh = manifest is None and replaces is None
        self._crew.join(self.agent, self.env)
        if manifest is None:
            self.agent.learner.weights_replaced()

    def run(self) -> SessionResult:
        """Trains until the budget is spent, the target return is reached, or a stop is asked for.

        Raises NonFiniteLossError with the state saved beside the last good checkpoint.
        """
        crew, experience = self._crew, self._experience
        self._begin()
        try:
            while not self._is_over():
                if crew.asks_to_save:
                    self._save_together()
                crew.refresh()
                finished = experience.step()  # act, step, observe: see `Acting`
                if finished is not None:
                    self.tracker.track_episodes(*finished, self.clock.total_frame)
                    crew.tell(finished)
                self._after_step()
        except NonFiniteLossError as error:
            kept = self.records.save_aside(self.clock.frame, self.state_dict())
            raise NonFiniteLossError(f"{error}\n{kept}") from error
        return self._end()

    def close(self) -> None:
        """Frees the environments and the file of rows."""
        self.records.close()
        if self._evaluation is not None:
            self._evaluation.close()
        self._experience.close()
        self.env.close()

    def state_dict(self) -> StateDict:
        """Everything that the next step depends on, less the steps that the agent's log has."""
        return {
            "frame": self.clock.frame,
            "frames": self.clock.frames,
            "elapsed": self._stopwatch.state_dict(),
            "agent": self.agent.state_without_log(),
            **self._experience.state_dict(),
            "tracker": self.tracker.state_dict(),
            "evaluation": None if self._evaluation is None else self._evaluation.state_dict(),
            "crew": self._crew.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Takes up a saved Session where it stood; `_restore` does the rest."""
        self.clock.load(int(state["frame"]), state["frames"])
        self._stopwatch.load_state_dict(state["elapsed"])
        self.agent.load_state_dict(state["agent"])
        self._experience.load_state_dict(state)
        self.tracker.load_state_dict(state["tracker"])
        if self._evaluation is not None:
            self._evaluation.load_state_dict(state["evaluation"])
        self._crew.load_state_dict(state["crew"])

    def _begin(self) -> None:
        """Fresh episodes, or those that were saved."""
        self._crew.assemble()
        self._stopwatch.start()
        self.records.start_clock()
        self._crew.enter()
        self._board.write(self.index, phase=Phase.RUNNING)
        self._show()
        how = "starting" if self._is_fresh else "going on"
        logger.info("%s at frame %d", how, self.clock.frame)
        if self._is_fresh:
            self._experience.begin()
        else:
            self._after_step()  # what a stop has dropped, or what it had met the others for

    def _after_step(self) -> None:
        """Learns, evaluates, films and tracks, if it is time.

        Each is done once however often this is called, so that a Session which was saved while it
        met the others takes up what it had come for.
        """
        frame, evaluation, video = self.clock.frame, self._evaluation, self._video
        if self.agent.is_due:
            if not self._is_granted(Wish.LEARN):
                return
            self._learn()
        if not self._crew.leads:
            return
        if evaluation is not None and evaluation.tracker.due(frame):
            self._wish_to_evaluate()
        if video is not None and video.due(frame) and video.is_missing(frame):
            self._record(video)
        if self.tracker.due(frame):
            self._log_row()

    def _learn(self) -> None:
        """One training event."""
        for finished in self._crew.heard():
            self.tracker.track_episodes(*finished, self.clock.total_frame)
        self._crew.refresh()
        report = self.agent.learn(self.clock.total_frame)
        assert report is not None
        self.tracker.track_update(self._crew.learned(report, self._stopwatch.cpu_t))
        if self._checks is not None:
            self._checks.after_learning()

    def _is_granted(self, wish: Wish) -> bool:
        """Does with the others whatever comes before it; False where that is the end, or where the
        end that was wished for is not due yet."""
        while True:
            granted = self._crew.meet(wish, self.agent.num_samples)
            if granted is wish:
                return True
            if granted.is_end:
                self._granted_end = granted
                return False
            if granted is Wish.SAVE:
                self._save(finished=False)
            elif granted is Wish.EVALUATE:
                self._evaluate()
            elif wish is Wish.FINISH:  # but it is time to act
                return False

    def _is_over(self) -> bool:
        """Whether the run ends here, for this Session and for those that it trains with."""
        if self._granted_end is None and (
            self.clock.exhausted
            or self._board.stop_requested
            or self._solved()
            or self._experience.has_ended
        ):
            finished = self.clock.exhausted or self._solved()
            wish = Wish.FINISH if finished else Wish.STOP
            if self._is_granted(wish):
                self._granted_end = wish
        return self._granted_end is not None

    def _end(self) -> SessionResult:
        """The last rows and the last checkpoint."""
        finished = self._granted_end is Wish.FINISH
        if finished and self._crew.leads:
            finished = self._close_books()
        end = Wish.FINISH if finished else Wish.STOP
        finished = self._is_granted(end) and finished
        self._save(finished, self._crew.end_together(self.state_dict))
        if finished and self._checks is not None:
            self._checks.at_end()
        ending, error = Ending.FINISHED if finished else Ending.INTERRUPTED, None
        if self._experience.has_ended and not finished and not self._board.stop_requested:
            ending = Ending.FAILED
            error = f"nobody acts any more; the state is saved at frame {self.clock.frame}"
        logger.info(
            "%s at frame %d after %.1f s", ending, self.clock.frame, self._stopwatch.read().wall_t
        )
        return SessionResult(self.index, ending, self.clock.frame, error)

    def _solved(self) -> bool:
        target, best = self.spec.meta.stop_return, self.tracker.best_return
        if target is None:
            return False
        if best is not None and best >= target:
            self._crew.declare_solved()
            return True
        return self._crew.solved

    def _close_books(self) -> bool:
        """The last evaluation, video and row; False where a stop came between."""
        frame, evaluation, video = self.clock.frame, self._evaluation, self._video
        if evaluation and frame > evaluation.tracker.last_frame and not self._wish_to_evaluate():
            return False
        if video is not None and video.is_missing(frame):
            self._record(video)
        if frame > self.tracker.last_frame:
            self._log_row(save=False)
        return True

    def _wish_to_evaluate(self) -> bool:
        return self._is_granted(Wish.EVALUATE) and self._evaluate()

    def _evaluate(self) -> bool:
        """One row of evaluation; remembers the best agent. It comes before the training row of the
        same frame, so that the checkpoint there has it.

        False where a stop was asked for: it is dropped, and made when the run goes on.
        """
        evaluation = self._evaluation
        with self._standing_aside() as snapshot:
            own: FinishedEpisodes | None = NO_EPISODES
            if evaluation is not None:
                own = evaluation.play(snapshot, self._is_stop_asked_for)
            episodes = self._crew.evaluated(own)
        if episodes is None:
            if evaluation is not None:
                evaluation.take_back()
            return False
        if evaluation is None or not self._crew.leads:
            return True
        row = evaluation.tracker.row(
            episodes.episode_return,
            episodes.episode_length,
            frame=self.clock.frame,
            total_frame=self.clock.total_frame,
            wall_t=self._stopwatch.read().wall_t,
            epi=self.tracker.episodes,
            opt_step=self.agent.learner.opt_step,
        )
        self.records.append(self.paths.eval_rows.name, row)
        if evaluation.tracker.improved:
            self.records.remember({**snapshot, "eval_return": evaluation.tracker.best_return})
        return True

    def _record(self, video: VideoRecorder) -> None:
        """One video of the agent as it is now; none where a stop was asked for."""
        with self._standing_aside() as snapshot:
            video.record(snapshot, self._is_stop_asked_for)

    def _is_stop_asked_for(self) -> bool:
        """To be asked at every step of episodes that are not training."""
        self._crew.show_progress()
        return self._board.stop_requested

    @contextmanager
    def _standing_aside(self) -> Iterator[StateDict]:
        """To do something that is not training with the agent as it is now: its time does not
        count, and nobody waits for this Session."""
        with self._stopwatch.aside():
            snapshot = self._snapshot()
            self._crew.stand_aside()
            yield snapshot
            self._crew.enter()

    def _log_row(self, save: bool = True) -> None:
        """One row; remembers the best agent; a checkpoint when the last one is old enough."""
        elapsed = self._stopwatch.read()
        self.tracker.track_update(self._crew.report(elapsed.wall_t - self.tracker.last_wall_t))
        row = self.tracker.row(
            frame=self.clock.frame,
            total_frame=self.clock.total_frame,
            wall_t=elapsed.wall_t,
            cpu_t=self._crew.cpu_t(elapsed.cpu_t),
            opt_step=self.agent.learner.opt_step,
            explore_var=self._experience.explore_var,
        )
        self.records.append(self.paths.rows.name, row)
        if self.tracker.improved and self._evaluation is None:
            best = {**self._snapshot(), "recent_return": self.tracker.best_return}
            self.records.remember(best)
        self._show()
        if self._on_row is not None:
            self._on_row(self)
        due = self.records.seconds_since_save >= self.spec.meta.save_interval
        if save and due and self._crew.saves_at_rows and self._is_granted(Wish.SAVE):
            self._save(finished=False)

    def _show(self) -> None:
        row = self.tracker.last_row
        best = self.tracker.best_return
        if self._evaluation is not None:
            best = self._evaluation.tracker.best_return
        if row is not None:
            recent = row["recent_return"]
            if recent is None:  # of the few episodes that have ended
                recent = row["final_return"]
            self._board.write(
                self.index,
                fps=row["fps"],
                recent_return=recent,
                best=best,
                **{name: row[name] for name in Flow._fields if name in row.columns},
            )

    def _save_together(self) -> None:
        began = time.perf_counter()
        state = self._crew.save_together(self.state_dict)
        if state is not None:
            self._save(False, state)
            self._crew.paused(time.perf_counter() - began)

    def _save(self, finished: bool, state: StateDict | None = None) -> None:
        """A checkpoint of what is here now, or of `state`, which all have agreed on."""
        self._crew.show_progress()
        self._board.saving[self.index] = 1
        try:
            if state is None:
                state = self.state_dict()
            frame, together = self.clock.frame, self._crew.all_have_written
            parts = self.records.save(frame, state, self.agent.log, finished, together)
        finally:
            self._board.saving[self.index] = 0
        logger.info("checkpoint at frame %d: %s", frame, ", ".join(parts))

    def _snapshot(self) -> StateDict:
        """What is needed to act as now: weights and normaliser statistics, no replay."""
        return {
            "frame": self.clock.frame,
            "flats": {name: f.state_dict() for name, f in self.agent.learner.flats.items()},
            "statistics": self.env.statistics.copy(),
        }

    def _restore(self, manifest: Manifest) -> None:
        state, file = self.records.load(manifest), self.records.file(manifest)
        with reading(file):
            built = self.agent.learner.flats, self.env.statistics
            check_fits(snapshot_of(state), *built, file)
            saved = state["agent"]["learner"]["units"]
            check_optimizers(saved, self.agent.learner.units.optimizers, file)
            self.load_state_dict(state)
        if self.agent.log is not None:
            self.records.load_log(manifest, self.agent.log)
        self._experience.go_on(state)

    def _take_over(self, manifest: Manifest | None) -> None:
        """Goes on where another process died: with its frames and rows, in fresh episodes."""
        rows_file = self.paths.rows
        rows = read_rows(rows_file) if rows_file.exists() else NO_ROWS
        self.tracker.catch_up(rows)
        if len(rows):
            self.agent.learner.opt_step = int(rows["opt_step"][-1])
            last = float(rows["wall_t"][-1]), float(rows["cpu_t"][-1])
            self._stopwatch.go_on_after(*last)
        if manifest is not None:
            self.agent.break_off(self.env.obs, self.env.raw_obs)
        self.env.reset()
