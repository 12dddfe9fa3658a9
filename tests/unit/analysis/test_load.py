import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.analysis.load import load_session_df
from slm_lab.metrics.row import BASE_COLUMNS, Row
from slm_lab.metrics.writer import RowWriter


@pytest.fixture
def path(tmp_path):
    return tmp_path / "session_df.csv"


def test_counts_are_integers_all_else_is_float_and_empty_is_nan(path):
    path.write_text("frame,total_frame,wall_t,epi,opt_step,loss,note\n500,1000,1,0,3,,7\n")
    df = load_session_df(path)
    assert df.dtypes.astype(str).tolist() == [
        *("int64", "int64", "float64", "int64", "int64", "float64", "float64")
    ]
    assert np.isnan(df["loss"][0])


@pytest.mark.parametrize("text", ["", "frame,to", ",".join(BASE_COLUMNS) + "\n"])
def test_a_file_without_rows_is_a_session_without_rows(path, text):
    path.write_text(text)
    df = load_session_df(path)
    assert len(df) == 0
    assert tuple(df.columns) == BASE_COLUMNS
    assert df["frame"].dtype == np.int64
    assert df["loss"].dtype == np.float64


@pytest.mark.parametrize("half", ["6", "600,", "600,0.25"])
def test_a_last_line_that_is_still_being_written_is_left_out(path, half):
    path.write_text(f"frame,loss\n500,0.5\n{half}")
    assert load_session_df(path)["frame"].tolist() == [500]


def test_a_missing_file_and_a_cell_that_is_no_number_are_errors(path):
    with pytest.raises(FileNotFoundError):
        load_session_df(path)
    path.write_text("frame,loss\n500,high\n")
    with pytest.raises(ValueError, match="high"):
        load_session_df(path)


@given(values=st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_what_was_written_is_read_back_to_the_same_bits(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("csv") / "session_df.csv"
    with RowWriter(path, ("loss",)) as writer:
        for value in values:
            writer.append(Row(("loss",), (value,)))
    assert load_session_df(path)["loss"].tolist() == values
