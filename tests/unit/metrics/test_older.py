import numpy as np
import pytest

from slm_lab.metrics.reader import read_rows

HEADER = "frame,total_frame,epi,total_reward,total_reward_ma"


def read(folder, lines):
    file = folder / "rows.csv"
    file.write_text("\n".join([HEADER, *lines, ""]))
    return read_rows(file)


@pytest.mark.parametrize(
    "lines", [[], ["100,100,0,,"], ["100,100,0,,", "200,200,1,7.0,7.0"]]
)
def test_rows_of_an_earlier_version_have_the_newer_columns_empty(tmp_path, lines):
    rows = read(tmp_path, lines)
    assert len(rows) == len(lines)
    for column in (
        "mean_return",
        "recent_return",
        "final_return",
        "final_return_episodes",
    ):
        assert np.isnan(rows[column]).all()
