import contextlib
import errno
import hashlib
import os
import resource
from contextlib import closing

import pytest

from slm_lab.core.errors import CheckpointError
from slm_lab.metrics.row import Row
from slm_lab.metrics.writer import Extent, RowWriter, SessionRows, truncate_rows

COLUMNS = ("frame", "total_reward")


def row(frame, total_reward=0.1):
    return Row(COLUMNS, (frame, total_reward))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "session_df.csv"


@contextlib.contextmanager
def disk_that_is_full_after(size):
    """The kernel takes the bytes up to `size` and refuses the rest, as a full disk
    does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_is_a_header_and_a_line_per_row(path):
    with closing(RowWriter(path, COLUMNS)) as writer:
        writer.append(row(100, None))
        writer.append(row(200, 1 / 3))
    assert path.read_text() == "frame,total_reward\n100,\n200,0.3333333333333333\n"


def test_a_row_can_be_read_as_soon_as_it_is_appended(path):
    with closing(RowWriter(path, COLUMNS)) as writer:
        assert path.read_text() == "frame,total_reward\n"
        writer.append(row(100))
        assert path.read_text().endswith("100,0.1\n")


def test_sync_returns_size_and_checksum_of_the_file(path):
    for frame in (100, 200):
        with closing(RowWriter(path, COLUMNS)) as writer:
            writer.append(row(frame))
            content = path.read_bytes()
            assert writer.sync() == Extent(
                len(content), hashlib.sha256(content).hexdigest()
            )


def test_a_row_with_other_columns_is_refused(path):
    with (
        closing(RowWriter(path, COLUMNS)) as writer,
        pytest.raises(ValueError, match="does not fit"),
    ):
        writer.append(Row(("frame",), (1,)))


def test_a_file_is_continued_without_a_second_header(path):
    for frame in (100, 200):
        with closing(RowWriter(path, COLUMNS)) as writer:
            writer.append(row(frame))
            extent = writer.sync()
    assert path.read_text() == "frame,total_reward\n100,0.1\n200,0.1\n"
    assert extent.size == path.stat().st_size


def test_a_file_with_other_columns_is_not_continued(path):
    RowWriter(path, COLUMNS).close()
    with pytest.raises(CheckpointError, match="has the columns frame,total_reward"):
        RowWriter(path, ("frame", "loss"))


def test_a_file_that_ends_in_half_a_row_is_not_continued(path):
    path.write_text("frame,total_reward\n100,0.")
    with pytest.raises(CheckpointError, match="half a row"):
        RowWriter(path, COLUMNS)


def test_a_full_disk_raises_and_leaves_whole_rows(path):
    writer = RowWriter(path, COLUMNS)
    writer.append(row(100))
    size = writer.sync().size
    with disk_that_is_full_after(size + 3):
        with pytest.raises(OSError, match="too large") as caught:
            writer.append(row(200))
        assert caught.value.errno == errno.EFBIG
        writer.close()
    assert path.read_text() == "frame,total_reward\n100,0.1\n"


def test_writing_continues_when_the_disk_has_room_again(path):
    with closing(RowWriter(path, COLUMNS)) as writer:
        with (
            disk_that_is_full_after(writer.sync().size + 3),
            pytest.raises(OSError, match="too large"),
        ):
            writer.append(row(100))
        writer.append(row(200))
        assert writer.sync() == Extent.of(path.read_bytes())
    assert path.read_text() == "frame,total_reward\n200,0.1\n"


def test_a_header_that_does_not_fit_on_the_disk_leaves_an_empty_file(path):
    with disk_that_is_full_after(3), pytest.raises(OSError, match="too large"):
        RowWriter(path, COLUMNS)
    assert path.read_bytes() == b""
    RowWriter(path, COLUMNS).close()
    assert path.read_text() == "frame,total_reward\n"


def test_rows_after_a_checkpoint_are_cut_off(path):
    with closing(RowWriter(path, COLUMNS)) as writer:
        writer.append(row(100))
        extent = writer.sync()
        writer.append(row(200))
    with path.open("a") as file:
        file.write("300,0.")
    truncate_rows(path, extent)
    assert path.read_text() == "frame,total_reward\n100,0.1\n"


def test_rows_are_not_cut_from_a_file_that_is_missing_shorter_or_another(path):
    with pytest.raises(CheckpointError, match="is missing"):
        truncate_rows(path, Extent(10, ""))
    path.write_text("frame,total_reward\n100,0.1\n")
    with pytest.raises(CheckpointError, match="fewer than the 28"):
        truncate_rows(path, Extent(28, ""))
    with pytest.raises(CheckpointError, match="do not match the checksum"):
        truncate_rows(path, Extent.of(b"frame,total_reward\n100,0.2\n"))
    assert path.read_text() == "frame,total_reward\n100,0.1\n"


TABLES = {"train.csv": ("frame", "loss"), "eval.csv": ("frame", "return_std")}


def write_tables(files, *frames):
    for frame in frames:
        for name, columns in TABLES.items():
            files.append(name, Row(columns, (frame, 0.5)))


def test_the_files_of_a_checkpoint_are_cut_back_together(tmp_path):
    files = SessionRows(tmp_path, TABLES)
    write_tables(files, 100, 200)
    extents = files.sync()
    expected = {name: (tmp_path / name).read_bytes() for name in TABLES}
    assert extents == {name: Extent.of(text) for name, text in expected.items()}
    write_tables(files, 300)
    files.close()
    SessionRows(tmp_path, TABLES, extents).close()
    assert {name: (tmp_path / name).read_bytes() for name in TABLES} == expected


def test_without_a_checkpoint_all_files_start_empty(tmp_path):
    files = SessionRows(tmp_path, TABLES)
    write_tables(files, 100)
    files.close()
    SessionRows(tmp_path, TABLES).close()
    for name, columns in TABLES.items():
        assert (tmp_path / name).read_text() == ",".join(columns) + "\n"


def test_a_file_that_the_checkpoint_does_not_know_is_reported(tmp_path):
    SessionRows(tmp_path, TABLES).close()
    with pytest.raises(CheckpointError, match=r"eval\.csv"):
        SessionRows(tmp_path, TABLES, {"train.csv": Extent.of(b"")})


def test_where_one_file_cannot_be_continued_none_is_left_open(tmp_path):
    SessionRows(tmp_path, TABLES).close()
    (tmp_path / "eval.csv").write_text("other,columns\n")
    extents = {name: Extent.of((tmp_path / name).read_bytes()) for name in TABLES}
    with pytest.raises(CheckpointError, match="other,columns"):
        SessionRows(tmp_path, TABLES, extents)
    opened = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if _is(fd)
    ]
    assert not any(str(tmp_path) in path for path in opened)


def _is(fd):
    return os.path.exists(f"/proc/self/fd/{fd}")


def test_rows_that_cannot_be_read_do_not_fit(tmp_path):
    folder = tmp_path / "rows.csv"
    folder.mkdir()
    assert Extent(10, "").misfit(folder) == f"{folder} cannot be read: Is a directory"
    assert "is missing" in Extent(10, "").misfit(tmp_path / "none.csv")
