"""An mp4 file, written frame by frame."""

import os
import subprocess
from pathlib import Path
from typing import final

from slm_lab.core.errors import LabError
from slm_lab.core.files import link_error
from slm_lab.core.types import Array

END_SECONDS = 60.0
"""How long ffmpeg may take at most to end once it has all frames."""


@final
class VideoFile:
    """Frames (H, W, 3) uint8 as H.264 in an mp4 file, at `fps` frames per second. The
    file gets its name when it is complete: until `close` a dot precedes the name. Odd
    sizes are padded by one line, because players support only even ones. Raises
    LabError if the frames cannot be written. The writer of imageio_ffmpeg would lose
    ffmpeg's message and exit code."""

    def __init__(self, path: Path, frame: Array, fps: float) -> None:
        """`frame` only sets the size; it is not written."""
        from imageio_ffmpeg import get_ffmpeg_exe

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
                get_ffmpeg_exe(),
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
