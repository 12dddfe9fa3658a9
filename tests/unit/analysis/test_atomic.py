import io
from pathlib import Path

import pytest

from slm_lab.analysis import atomic
from slm_lab.analysis.atomic import write_atomically

NO_SPACE = OSError(28, "No space left on device")


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
    [(atomic, "new_file", lambda path: FullDisk(path, "w")), (Path, "replace", no_replacing)],
)
def test_a_failure_keeps_the_old_file_and_leaves_no_other_behind(
    tmp_path, monkeypatch, where, name, failing
):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    monkeypatch.setattr(where, name, failing)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
