"""The tables of searches and comparisons."""

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.records.table import read_table


def test_the_word_of_one_process_stays_a_word(tmp_path):
    file = tmp_path / "small_compare_df.csv"
    file.write_text("mode,workers\nfalse,1\n")
    assert read_table(file).to_dict("list") == {"mode": ["false"], "workers": [1]}


def test_a_table_without_modes_is_read_as_it_is(tmp_path):
    file = tmp_path / "small_experiment_df.csv"
    file.write_text("trial,normalize\n0,False\n")
    assert read_table(file).to_dict("list") == {"trial": [0], "normalize": [False]}


def test_a_table_that_is_not_written_yet_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"has no small_df\.csv yet"):
        read_table(tmp_path / "small_df.csv")
