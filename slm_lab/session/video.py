"""Videos of greedy episodes: `meta.record_video`, and `enjoy@RUN --video`; and the mp4
file, written frame by frame."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import final

import numpy as np
from typing_extensions import override

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.files import link_error
from slm_lab.core.text import error_summary
from slm_lab.core.types import Array, StateDict
from slm_lab.env.check import film_fault
from slm_lab.env.extras import import_extra, require
from slm_lab.env.simulators.film import IMAGE_MODE, Film, headless
from slm_lab.env.vector.raw import CopyMarks
from slm_lab.session.evaluator import Evaluator
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.run_dir import SessionPaths

END_SECONDS = 60.0
"""How long ffmpeg may take at most to end once it has all frames."""


@final
class VideoFile:
    """Frames (H, W, 3) uint8 as H.264 in an mp4 file, at `fps` frames per second. The
    file gets its name when it is complete: until `close` a dot precedes the name. Odd
    sizes are padded by one line, because players support only even ones. Raises
    LabError if the frames cannot be written, MissingExtraError without imageio_ffmpeg.
    That package's own writer would lose ffmpeg's message and exit code."""

    def __init__(self, path: Path, frame: Array, fps: float) -> None:
        """`frame` only sets the size; it is not written."""
        ffmpeg: str = import_extra("imageio_ffmpeg", "video").get_ffmpeg_exe()
        self.path = path
        self._shape = frame.shape
        self._unfinished = path.with_name(f".{path.name}")
        height, width, _ = frame.shape
        raw = [
            "-f",
            "rawvideo",
            "-pix_fmt",
            "rgb24",
            "-s",
            f"{width}x{height}",
            "-r",
            f"{fps}",
        ]
        even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
        video = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-threads", "1", *even]
        output = ["-f", "mp4", "-movflags", "+faststart", str(self._unfinished)]
        path.parent.mkdir(parents=True, exist_ok=True)
        if self._unfinished.is_symlink():  # ffmpeg would write through it
            raise link_error(self._unfinished)
        self._ffmpeg = subprocess.Popen(
            [
                ffmpeg,
                "-xerror",
                "-v",
                "error",
                "-y",
                *raw,
                "-i",
                "-",
                *video,
                *output,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,  # with -xerror it gets the first error only
            # Ctrl-C reaches only us; ffmpeg ends with its input
            start_new_session=True,
        )
        assert self._ffmpeg.stdin is not None
        self._input = self._ffmpeg.stdin

    def write(self, frame: Array) -> None:
        """Writes the next frame."""
        if frame.shape != self._shape:
            raise LabError(
                f"{self.path}: a frame of {frame.shape} comes after {self._shape}"
            )
        try:
            self._input.write(frame.tobytes())
        except OSError as error:
            raise self._end() from error

    def close(self) -> None:
        """Completes the file and renames it to `path`."""
        failure = self._end()
        if self._ffmpeg.returncode != 0:
            raise failure
        os.replace(self._unfinished, self.path)

    def drop(self) -> None:
        """Discards the file, after a failure or if it is not needed."""
        self._ffmpeg.kill()
        self._end()
        self._unfinished.unlink(missing_ok=True)

    def _end(self) -> LabError:
        """Waits for ffmpeg, which has all its input; returns the error to raise if it
        failed."""
        messages = b""
        if not self._input.closed:
            try:
                _, messages = self._ffmpeg.communicate(timeout=END_SECONDS)
            except subprocess.TimeoutExpired:
                self._ffmpeg.kill()
                _, messages = self._ffmpeg.communicate()
        lines = messages.decode(errors="replace").strip().splitlines()
        # Without ffmpeg's prefix, such as "[out#0/mp4 @ 0x55d1] ".
        why = (
            lines[-1].rpartition("] ")[2]
            if lines
            else f"exit code {self._ffmpeg.returncode}"
        )
        return LabError(f"{self.path} cannot be written: ffmpeg: {why}")


logger = logging.getLogger(__name__)

MAX_STEPS = 10_000
"""Maximum length of a filmed episode; a longer one is cut."""


@final
class VideoFilm(Film):
    """Writes each episode to the file `path_of(number)`; numbers start at 1."""

    def __init__(self, path_of: Callable[[int], Path]) -> None:
        self.finished: list[Path] = []
        self.length = 0
        self._path_of = path_of
        self._file: VideoFile | None = None

    @override
    def add(self, frame: Array, fps: float) -> None:
        """Raises LabError if the file cannot be written."""
        if self._file is None:
            self._file = VideoFile(self._path_of(len(self.finished) + 1), frame, fps)
        self._file.write(frame)
        self.length += 1

    @override
    def end(self) -> None:
        assert self._file is not None, "an episode has frames"
        self._file.close()
        self.finished.append(self._file.path)
        self._file = None
        self.length = 0

    def close(self) -> None:
        """Discards the file of an unfinished episode."""
        if self._file is not None:
            self._file.drop()
            self._file = None


def filmed_spec(spec: Spec) -> Spec:
    """The spec with rendering on. Raises UsageError if the environment cannot render
    images, MissingExtraError if nothing could write them."""
    require("imageio_ffmpeg", "video")
    reason = film_fault(spec.env)
    if reason is not None:
        raise UsageError(f"{spec.env.name} cannot be drawn: {reason}")
    env = spec.env.model_copy(
        update={"vectorization_mode": "sync", "render_mode": IMAGE_MODE}
    )
    return spec.model_copy(update={"env": env})


@final
class VideoRecorder:
    """Plays and films one greedy episode every `meta.record_video` frames. It shares
    only a snapshot with the training and keeps no state. So a video depends on the
    snapshot, `seed` and the frame. After a failure it warns once and records no more;
    training continues. It records nothing if the environment cannot render images,
    which `Run` reports."""

    def __init__(
        self, spec: Spec, seed: int, paths: SessionPaths, marks: CopyMarks | None = None
    ) -> None:
        assert spec.meta.record_video is not None
        self._every = spec.meta.record_video
        self._spec = spec
        self._seed = seed
        self._paths = paths
        self._marks = marks
        films = paths.video(0).parent.glob(f"{paths.video(0).stem[:-1]}*.mp4")
        ends = [film.stem.rpartition("_")[2] for film in films]
        self._failed = False
        self._last = max([0, *map(int, filter(str.isdecimal, ends))])
        # a simulator that does not import; `record` reports it
        with suppress(LabError):
            self._failed = film_fault(spec.env) is not None

    def due(self, frame: int) -> bool:
        """Whether `frame` has passed a multiple of `record_video` since the last
        video."""
        return not self._failed and frame // self._every > self._last // self._every

    def is_missing(self, frame: int) -> bool:
        """Whether there is no video at `frame` yet, for example because a stop dropped
        it."""
        return not self._failed and not self._paths.video(frame).exists()

    def record(self, snapshot: StateDict, stop: Callable[[], bool]) -> None:
        """Films an episode of the agent in `snapshot`; writes none if `stop` becomes
        true first."""
        frame = int(snapshot["frame"])
        try:
            self._record(snapshot, frame, stop)
            if not self.is_missing(frame):
                self._last = frame
        except Exception as error:  # any simulator's, or the disk's
            self._failed = True
            what = " ".join(error_summary(error).split()) or type(error).__name__
            message = (
                f"meta.record_video: no video at frame {frame}, and none from now on: "
                f"{what}"
            )
            logger.warning("%s", message, exc_info=True)
            print(message, file=sys.stderr)

    def _record(
        self, snapshot: StateDict, frame: int, stop: Callable[[], bool]
    ) -> None:
        (seed,) = np.random.SeedSequence([self._seed, frame]).generate_state(1)
        path = self._paths.video(frame)
        spec = filmed_spec(self._spec)
        with (
            headless(),
            closing(VideoFilm(lambda _: path)) as film,
            closing(
                Evaluator(spec, 1, int(seed), film, marks=self._marks)
            ) as evaluator,
        ):
            evaluator.load_snapshot(snapshot)
            too_long = False

            def enough() -> bool:
                nonlocal too_long
                too_long = film.length > MAX_STEPS
                return too_long or stop()

            for episode in evaluator.finished_episodes(1, enough):
                mean = float(episode.episode_return.mean())
                logger.info("%s: an episode with the return %.6g", path, mean)
            if too_long:
                film.end()
                logger.info("%s: the first %d steps of an episode", path, MAX_STEPS)
