import subprocess
import sys
from contextlib import closing

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from slm_lab.metrics.row import Row
from slm_lab.metrics.tensorboard import TensorBoardExporter
from slm_lab.metrics.writer import RowWriter, truncate_rows

COLUMNS = ("frame", "wall_t", "total_reward", "loss")


@pytest.fixture
def csv(tmp_path):
    return tmp_path / "session_df.csv"


@pytest.fixture
def log_dir(tmp_path):
    return tmp_path / "log" / "t0_s0"


def append(path, *frames, wall_t=0.001):
    with closing(RowWriter(path, COLUMNS)) as writer:
        for frame in frames:
            loss = None
            if not frame % 200:
                loss = frame / 4
            writer.append(Row(COLUMNS, (frame, frame * wall_t, float(frame), loss)))
        return writer.sync()


def scalars(log_dir, tag):
    events = EventAccumulator(str(log_dir), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_every_filled_cell_becomes_a_scalar_at_its_frame(csv, log_dir):
    append(csv, 100, 200)
    with closing(TensorBoardExporter(csv, log_dir)) as exporter:
        assert exporter.update() == 2
    assert scalars(log_dir, "total_reward") == [(100, 100.0), (200, 200.0)]
    assert scalars(log_dir, "loss") == [(200, 50.0)]


def test_frames_and_seconds_are_the_axes_and_no_scalars(csv, log_dir):
    append(csv, 100, 200)
    with closing(TensorBoardExporter(csv, log_dir, started_at=1e9)) as exporter:
        exporter.update()
    events = EventAccumulator(str(log_dir))
    events.Reload()
    assert events.Tags()["scalars"] == ["total_reward", "loss"]
    assert [event.wall_time for event in events.Scalars("total_reward")] == [
        1e9 + 0.1,
        1e9 + 0.2,
    ]


def test_only_new_rows_are_exported_and_half_a_line_waits_for_its_end(csv, log_dir):
    append(csv, 100)
    with closing(TensorBoardExporter(csv, log_dir)) as exporter:
        assert [exporter.update(), exporter.update()] == [1, 0]
        with csv.open("a") as file:
            file.write("200,0.2,20")
            file.flush()
            assert exporter.update() == 0
            file.write("0.0,\n")
        assert exporter.update() == 1
    assert scalars(log_dir, "total_reward") == [(100, 100.0), (200, 200.0)]


def test_a_file_that_is_missing_empty_or_a_header_has_no_rows(csv, log_dir):
    with closing(TensorBoardExporter(csv, log_dir)) as exporter:
        assert exporter.update() == 0
        csv.write_text("")
        assert exporter.update() == 0
        append(csv)
        assert exporter.update() == 0
        append(csv, 100)
        assert exporter.update() == 1


@pytest.mark.parametrize("seen_while_short", [True, False])
def test_after_a_resume_the_rows_that_were_cut_are_shown_no_more(
    csv, log_dir, seen_while_short
):
    size = append(csv, 100, 200)
    append(csv, 300, 400)
    with closing(TensorBoardExporter(csv, log_dir)) as exporter:
        exporter.update()
        truncate_rows(csv, size)
        if seen_while_short:
            exporter.update()
        append(csv, 350, 450, 550, wall_t=0.002)
        exporter.update()
    assert [step for step, _ in scalars(log_dir, "total_reward")] == [
        100,
        200,
        350,
        450,
        550,
    ]


def test_a_second_exporter_shows_no_point_twice(csv, log_dir):
    append(csv, 100, 200)
    for frame in (300, 400):
        with closing(TensorBoardExporter(csv, log_dir)) as exporter:
            exporter.update()
            append(csv, frame)
            exporter.update()
    assert [step for step, _ in scalars(log_dir, "total_reward")] == [
        100,
        200,
        300,
        400,
    ]
    assert len(list(log_dir.iterdir())) == 2


def test_importing_and_exporting_takes_neither_torch_nor_tensorboard_early(
    csv, log_dir
):
    append(csv, 100)
    code = (
        "import sys; from slm_lab.metrics.tensorboard import TensorBoardExporter as "
        f"Exporter\nassert 'tensorboard' not in sys.modules\nExporter({str(csv)!r}, "
        f"{str(log_dir)!r}).update()\nassert not {{'torch', 'tensorflow'}} & "
        "set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
