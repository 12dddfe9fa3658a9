"""An mp4 file, written frame by frame."""

import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import final

from slm_lab.core.errors import LabError
from slm_lab.core.files import link_error
from slm_lab.core.types import Array


@final
class VideoFile:
    """Frames (H, W, 3) uint8 as H.264 in an mp4 file, at `fps` frames per second.

    The file gets its name when it is complete: until `close` a dot precedes the name. Odd sizes
    are padded by one line, because players support only even ones. Raises LabError if the frames
    cannot be written.
    """

    def __init__(self, path: Path, frame: Array, fps: float) -> None:
        """`frame` only sets the size; it is not written."""
        from imageio_ffmpeg import get_ffmpeg_exe

        self.path = path
        self._shape = frame.shape
        self._unfinished = path.with_name(f".{path.name}")
        height, width, _ = frame.shape
        raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps}"]
        video = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-threads", "1"]
        even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
        output = ["-f", "mp4", "-movflags", "+faststart", str(self._unfinished)]
        # A pipe could fill up and block ffmpeg.
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if self._unfinished.is_symlink():  # ffmpeg would write through it
                raise link_error(self._unfinished)
            self._ffmpeg = subprocess.Popen(
                [get_ffmpeg_exe(), "-v", "error", "-y", *raw, "-i", "-", *video, *even, *output],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._messages,
                start_new_session=True,  # Ctrl-C reaches only us; ffmpeg ends with its input
            )
        except BaseException:
            self._messages.close()
            raise
        assert self._ffmpeg.stdin is not None
        self._input = self._ffmpeg.stdin

    def write(self, frame: Array) -> None:
        """Writes the next frame."""
        if frame.shape != self._shape:
            raise LabError(f"{self.path}: a frame of {frame.shape} comes after {self._shape}")
        try:
            self._input.write(frame.tobytes())
        except OSError as error:
            raise self._failure() from error

    def close(self) -> None:
        """Completes the file and renames it to `path`."""
        try:
            self._input.close()
        except OSError as error:
            raise self._failure() from error
        if self._ffmpeg.wait() != 0:
            raise self._failure()
        os.replace(self._unfinished, self.path)
        self._messages.close()

    def drop(self) -> None:
        """Discards the file, after a failure or if it is not needed."""
        self._ffmpeg.kill()
        self._ffmpeg.wait()
        with suppress(OSError):  # unread input is lost
            self._input.close()
        self._messages.close()
        self._unfinished.unlink(missing_ok=True)

    def _failure(self) -> LabError:
        code = self._ffmpeg.wait()
        self._messages.seek(0)
        lines = self._messages.read().decode(errors="replace").strip().splitlines()
        # Without ffmpeg's prefix, such as "[out#0/mp4 @ 0x55d1] ".
        why = lines[-1].rpartition("] ")[2] if lines else f"exit code {code}"
        return LabError(f"{self.path} cannot be written: ffmpeg: {why}")
