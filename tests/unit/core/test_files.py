import io
import os
from pathlib import Path

import pytest

from slm_lab.core import files
from slm_lab.core.errors import LabError
from slm_lab.core.files import new_file, open_own, refuse_links, write_atomically

NO_SPACE = OSError(28, "No space left on device")


def test_a_file_is_written_and_read_back(tmp_path):
    with new_file(tmp_path / "a") as stream:
        stream.write(b"one")
    with new_file(tmp_path / "a") as stream:
        stream.write(b"2")
    assert (tmp_path / "a").read_bytes() == b"2"


@pytest.mark.parametrize("there", [True, False])
def test_the_target_of_a_link_is_unchanged(tmp_path, there):
    precious = tmp_path / "precious"
    if there:
        precious.write_bytes(b"precious")
    (tmp_path / "link").symlink_to(precious)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
    with pytest.raises(LabError, match="link is a symbolic link") as caught:
        open_own(tmp_path / "link", flags)
    assert len(str(caught.value).splitlines()) == 1
    assert precious.exists() == there
    assert not there or precious.read_bytes() == b"precious"


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_own(tmp_path / "gone", os.O_RDWR)


def test_links_and_pipes_anywhere_in_a_folder_are_found(tmp_path):
    inner = tmp_path / "run" / "info"
    inner.mkdir(parents=True)
    (inner / "rows.csv").touch()
    refuse_links(tmp_path / "run")
    (inner / "more").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(LabError, match="more is a symbolic link"):
        refuse_links(tmp_path / "run")
    (inner / "more").unlink()
    os.mkfifo(inner / "pipe")
    with pytest.raises(LabError, match="pipe is neither a file nor a folder"):
        refuse_links(tmp_path / "run")


def test_the_folder_itself_may_be_reached_by_a_link(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run", target_is_directory=True)
    refuse_links(tmp_path / "link")


def test_a_file_is_written_into_a_folder_that_is_made_for_it(tmp_path):
    write_atomically(tmp_path / "graph" / "a.png", b"1")
    write_atomically(tmp_path / "graph" / "a.png", b"22")
    assert (tmp_path / "graph" / "a.png").read_bytes() == b"22"
    assert len(list((tmp_path / "graph").iterdir())) == 1


class FullDisk(io.FileIO):
    """A file that has room for one byte."""

    def write(self, content):
        super().write(content[:1])
        raise NO_SPACE


def no_replacing(self, target):
    raise NO_SPACE


@pytest.mark.parametrize(
    ("where", "name", "failing"),
    [
        (files, "new_file", lambda path: FullDisk(path, "w")),
        (Path, "replace", no_replacing),
    ],
)
def test_a_failure_keeps_the_old_file_and_leaves_no_other_behind(
    tmp_path, monkeypatch, where, name, failing
):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    monkeypatch.setattr(where, name, failing)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(path, b"new")
    assert caught.value.filename == str(path)
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
