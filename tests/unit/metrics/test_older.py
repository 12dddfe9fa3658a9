import numpy as np
import pytest

from slm_lab.metrics.reader import read_rows

HEADER = "frame,total_frame,epi,total_reward,total_reward_ma"


def read(folder, lines):
    file = folder / "rows.csv"
    file.write_text("\n".join([HEADER, *lines, ""]))
    return read_rows(file)


def test_rows_of_an_earlier_version_get_the_newer_columns_that_can_be_derived(tmp_path):
    lines = [f"{100 * n},{100 * n},{2 * n},{float(n)},{n / 2}" for n in range(1, 101)]
    rows = read(tmp_path, lines)
    assert rows["mean_return"].tolist() == rows["total_reward"].tolist()
    assert rows["final_return"][-1] == np.mean([96, 97, 98, 99, 100])
    assert rows["final_return_episodes"][-1] == 10
    assert rows["final_return"][0] == 1.0
    assert np.isnan(rows["recent_return"]).all()


def test_rows_before_the_first_return_have_no_final_return(tmp_path):
    rows = read(tmp_path, ["100,100,0,,", "200,200,1,7.0,7.0"])
    assert np.isnan(rows["final_return"][0])
    assert rows["final_return"][1] == 7.0


@pytest.mark.parametrize("lines", [[], ["100,100,0,,"]])
def test_a_file_with_few_rows_is_read(tmp_path, lines):
    assert len(read(tmp_path, lines)) == len(lines)
