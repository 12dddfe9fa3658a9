"""A file that players and imageio can read, or none."""

from collections import deque

import numpy as np
import pytest

from slm_lab.core.errors import LabError
from slm_lab.session.video import VideoFile
from tests.video import read_video


def frames(count, height=32, width=48):
    """A bright bar that moves down, two lines with each frame."""
    images = np.zeros((count, height, width, 3), np.uint8)
    for index, image in enumerate(images):
        image[2 * index : 2 * index + 4] = 255
    return images


def write(path, images, fps=10.0):
    file = VideoFile(path, images[0], fps)
    for image in images:
        file.write(image)
    return file


def test_a_written_video_is_read_back_frame_by_frame(tmp_path):
    images = frames(12)
    write(tmp_path / "a.mp4", images, fps=12.5).close()
    meta, seen = read_video(tmp_path / "a.mp4")
    assert (meta["fps"], meta["codec"], meta["size"]) == (12.5, "h264", [48, 32])
    assert seen.shape == images.shape
    assert np.abs(seen.astype(int) - images).mean() < 5  # H.264 is not exact


def test_odd_sizes_get_a_line_more(tmp_path):
    write(tmp_path / "a.mp4", frames(3, 31, 47)).close()
    meta, seen = read_video(tmp_path / "a.mp4")
    assert meta["size"] == [48, 32]
    assert len(seen) == 3


def test_a_file_is_there_when_it_is_whole(tmp_path):
    path = tmp_path / "videos" / "a.mp4"
    file = write(path, frames(3))
    assert not path.exists()
    file.close()
    assert list(path.parent.iterdir()) == [path]


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a.mp4"
    write(path, frames(3)).close()
    before = path.read_bytes()
    write(path, frames(5)).drop()
    assert path.read_bytes() == before
    write(path, frames(5)).close()
    assert len(read_video(path)[1]) == 5


def test_a_dropped_video_leaves_no_file(tmp_path):
    file = write(tmp_path / "a.mp4", frames(3))
    file.drop()
    assert list(tmp_path.iterdir()) == []
    assert file._ffmpeg.returncode is not None


def test_a_video_that_cannot_be_written_is_one_clear_line(tmp_path):
    path = tmp_path / "a.mp4"
    (tmp_path / ".a.mp4").mkdir()
    images = frames(50, 320, 480)
    file = VideoFile(path, images[0], 10.0)
    with pytest.raises(
        LabError, match=r"^\S*/a\.mp4 cannot be written: ffmpeg: [^\n]+$"
    ):
        deque(map(file.write, images))
    (tmp_path / ".a.mp4").rmdir()
    file.drop()
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_that_dies_at_the_end_is_reported(tmp_path):
    file = write(tmp_path / "a.mp4", frames(3))
    file._ffmpeg.kill()
    file._ffmpeg.wait()
    with pytest.raises(LabError, match="exit code -9"):
        file.close()
    file.drop()
    assert list(tmp_path.iterdir()) == []


def test_frames_have_one_size(tmp_path):
    file = write(tmp_path / "a.mp4", frames(3))
    with pytest.raises(
        LabError, match=r"a frame of \(8, 8, 3\) comes after \(32, 48, 3\)"
    ):
        file.write(np.zeros((8, 8, 3), np.uint8))
    file.drop()
