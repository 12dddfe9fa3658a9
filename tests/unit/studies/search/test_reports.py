"""What a trial reports: the mean of its Sessions at equal rows, each reported once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.metrics.reader import read_rows
from slm_lab.studies.search.outcomes import RowWatch, reports

NAN = float("nan")
HEADER = "frame,total_frame,recent_return,total_reward_ma\n"


def write(path, rows, cut=0):
    """The rows (total_frame, score) as a Session writes them, less the last `cut`
    bytes."""
    lines = [f"{f},{f},{'' if np.isnan(s) else s},-1.0\n" for f, s in rows]
    text = HEADER + "".join(lines)
    path.write_text(text[: len(text) - cut])


def report(folder, *sessions):
    files = [folder / f"s{number}.csv" for number in range(len(sessions))]
    for file, rows in zip(files, sessions, strict=True):
        write(file, rows)
    return reports([read_rows(file) for file in files])


def test_the_kth_rows_belong_together_whatever_their_frames(tmp_path):
    # Workers share one clock: each writes after equal numbers of its own frames.
    found = report(tmp_path, [(150, 1.0), (390, 4.0)], [(210, 3.0), (400, 8.0)])
    assert found == [(210, 2.0), (400, 6.0)]


ROWS = st.lists(st.floats(-100, 100) | st.just(NAN), max_size=8)


@given(st.lists(ROWS, min_size=1, max_size=3))
def test_there_is_a_report_for_each_row_with_a_score_in_all(tmp_path_factory, scores):
    folder = tmp_path_factory.mktemp("rows")
    found = report(
        folder, *([(100 * k, s) for k, s in enumerate(each, 1)] for each in scores)
    )
    expected = [
        (100 * k, np.mean(together))
        for k, together in enumerate(zip(*scores, strict=False), 1)
        if np.isfinite(together).all()
    ]
    assert [frame for frame, _ in found] == [frame for frame, _ in expected]
    np.testing.assert_allclose(
        [score for _, score in found], [score for _, score in expected]
    )


@pytest.fixture
def files(tmp_path):
    return [tmp_path / "s0.csv", tmp_path / "s1.csv"]


def rows_to(frame):
    return [(f, f / 100) for f in range(100, frame + 1, 100)]


def frames(watch):
    return [frame for frame, _ in watch.poll()]


def test_every_report_is_returned_once(files):
    watch = RowWatch(files, 0)
    reported = []
    for frame in (100, 100, 300, 400):
        for file in files:
            write(file, rows_to(frame))
            reported += frames(watch)
        reported += frames(watch)
    assert reported == [100, 200, 300, 400]


def test_files_may_appear_late(files):
    watch = RowWatch(files, 0)
    assert frames(watch) == []
    write(files[0], rows_to(300))
    assert frames(watch) == []
    files[1].touch()
    assert frames(watch) == []
    write(files[1], rows_to(200))
    assert frames(watch) == [100, 200]


def test_reported_frames_are_not_reported_again(files):
    for file in files:
        write(file, rows_to(500))
    assert frames(RowWatch(files, 300)) == [400, 500]
    assert frames(RowWatch(files, 500)) == []


def test_rows_rewritten_after_a_resume_are_not_reported_again(files):
    for file in files:
        write(file, rows_to(500))
    watch = RowWatch(files, 0)
    assert frames(watch) == [100, 200, 300, 400, 500]
    for frame in (200, 300, 500, 600):  # cut to a checkpoint, and on from there
        for file in files:
            write(file, rows_to(frame))
        assert frames(watch) == ([600] if frame == 600 else [])
