from pathlib import Path

import pytest

from slm_lab.analysis.atomic import write_atomically


def test_a_file_is_written_into_a_folder_that_is_made_for_it(tmp_path):
    write_atomically(tmp_path / "graph" / "a.png", b"1")
    write_atomically(tmp_path / "graph" / "a.png", b"22")
    assert (tmp_path / "graph" / "a.png").read_bytes() == b"22"
    assert len(list((tmp_path / "graph").iterdir())) == 1


@pytest.mark.parametrize("step", ["write_bytes", "replace"])
def test_a_failure_keeps_the_old_file_and_leaves_no_other_behind(tmp_path, monkeypatch, step):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    real = getattr(Path, step)

    def fail(self, argument):
        if step == "write_bytes":
            real(self, argument[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, step, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
