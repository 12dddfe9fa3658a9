"""Videos of greedy episodes: `meta.record_video`, and `enjoy@RUN --video`."""

import logging
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import final

import numpy as np

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.types import Array, StateDict
from slm_lab.env.check import why_not_filmed
from slm_lab.env.film import IMAGES, Film, headless
from slm_lab.experiment.evaluate import Evaluator
from slm_lab.experiment.run_dir import SessionPaths
from slm_lab.experiment.video_file import VideoFile
from slm_lab.spec.schema.spec import Spec

logger = logging.getLogger(__name__)

MAX_STEPS = 10_000
"""of an episode that is filmed; a longer one is cut"""


@final
class VideoFilm(Film):
    """Each episode becomes the file that `path_of` says for its number, from 1 on."""

    def __init__(self, path_of: Callable[[int], Path]) -> None:
        self.finished: list[Path] = []
        self.length = 0
        """Frames of the episode that has not ended."""
        self._path_of = path_of
        self._file: VideoFile | None = None

    def add(self, frame: Array, fps: float) -> None:
        """See `Film`. Raises LabError where the file cannot be written."""
        if self._file is None:
            self._file = VideoFile(self._path_of(len(self.finished) + 1), frame, fps)
        self._file.write(frame)
        self.length += 1

    def end(self) -> None:
        """See `Film`. Raises as `add`."""
        assert self._file is not None, "an episode has frames"
        self._file.close()
        self.finished.append(self._file.path)
        self._file = None
        self.length = 0

    def close(self) -> None:
        """Leaves nothing of an episode that has not ended."""
        if self._file is not None:
            self._file.drop()
            self._file = None


def filmed_spec(spec: Spec) -> Spec:
    """The same, to be played with a film. Raises UsageError where the environment has no images."""
    reason = why_not_filmed(spec.env)
    if reason is not None:
        raise UsageError(f"{spec.env.name} cannot be drawn: {reason}")
    kwargs = {**spec.env.kwargs, "render_mode": IMAGES}
    env = spec.env.model_copy(update={"vectorization_mode": "sync", "kwargs": kwargs})
    return spec.model_copy(update={"env": env})


@final
class VideoRecorder:
    """Plays and films one greedy episode every `meta.record_video` frames.

    It shares nothing with the training but the snapshot that it is handed, and remembers nothing:
    what a video shows depends on the snapshot, `seed` and the frame. Where it fails, it says so
    once and makes no more; the training goes on. Of an environment that has no images, which
    `Run` tells, it makes none.
    """

    def __init__(self, spec: Spec, seed: int, paths: SessionPaths) -> None:
        assert spec.meta.record_video is not None
        self._every = spec.meta.record_video
        self._spec, self._seed, self._paths = spec, seed, paths
        self._failed = False
        with suppress(LabError):  # of a simulator that does not import, which `record` tells
            self._failed = why_not_filmed(spec.env) is not None

    def due(self, frame: int) -> bool:
        """Whether the last step, to `frame`, has completed another `record_video` frames."""
        before = frame - self._spec.env.num_envs
        return not self._failed and frame // self._every > before // self._every

    def is_missing(self, frame: int) -> bool:
        """Whether there is no video at `frame` yet, as when a stop has dropped it."""
        return not self._failed and not self._paths.video(frame).exists()

    def record(self, snapshot: StateDict, stop: Callable[[], bool]) -> None:
        """The episode of the agent in `snapshot`; none where `stop` comes before it has ended."""
        frame = int(snapshot["frame"])
        try:
            self._record(snapshot, frame, stop)
        except Exception as error:  # of any simulator, or the disk
            self._failed = True
            what = " ".join(str(error).split()) or type(error).__name__
            told = f"meta.record_video: no video at frame {frame}, and none from now on: {what}"
            logger.warning("%s", told, exc_info=True)
            print(told, file=sys.stderr)

    def _record(self, snapshot: StateDict, frame: int, stop: Callable[[], bool]) -> None:
        (seed,) = np.random.SeedSequence([self._seed, frame]).generate_state(1)
        path = self._paths.video(frame)
        spec = filmed_spec(self._spec)
        with (
            headless(),
            closing(VideoFilm(lambda _: path)) as film,
            closing(Evaluator(spec, 1, int(seed), film)) as evaluator,
        ):
            evaluator.load_snapshot(snapshot)
            too_long = False

            def enough() -> bool:
                nonlocal too_long
                too_long = film.length > MAX_STEPS
                return too_long or stop()

            for episode in evaluator.finished_episodes(1, enough):
                (episode_return,) = episode.episode_return
                logger.info("%s: an episode with the return %.6g", path, episode_return)
            if too_long:
                film.end()
                logger.info("%s: the first %d steps of an episode", path, MAX_STEPS)
