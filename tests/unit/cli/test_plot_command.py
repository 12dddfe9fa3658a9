"""`slm-lab plot`: what it prints, how fast it can be, and bad input."""

import pytest

from tests.faults.lab import LAB, call, call_here
from tests.support import ppo
from tests.unit.cli.trained import assert_bad_input, heavy_imports
from tests.unit.records.runs import write_run

WRONG = {
    "nothing": ([], ["FOLDER"]),
    "no such folder": (["nowhere"], ["there is no run folder nowhere"]),
    "no run": (["."], ["is no run folder"]),
    "two forms": (
        ["run", "--json", "--table", "csv"],
        ["--table and --json exclude each other"],
    ),
    "an unknown word": (["run", "--x", "wall"], ["--x wall", "wall_t"]),
}


@pytest.mark.medium
def test_the_numbers_of_each_run_and_the_graph_are_printed(tmp_path):
    write_run(tmp_path / "data", ppo(meta__max_session=3), name="first")
    write_run(tmp_path / "data", ppo(meta__max_session=5), name="second")
    folders = [path.name for path in sorted((tmp_path / "data").iterdir())]
    done = call([str(LAB), "plot", *folders, "--statistic", "iqm"], tmp_path)
    assert (done.code, done.err) == (0, "")
    graph = "plots/plot_mean_returns_ma_vs_frames.png"
    for words in (
        "IQM, 95 % interval",
        "first ",
        "second ",
        "with probability",
        f"graph {graph}",
    ):
        assert words in done.out
    assert "from 3 seeds" in done.out
    assert (tmp_path / graph).stat().st_size > 0


def test_a_table_alone_draws_nothing_unless_a_file_is_named(tmp_path):
    write_run(tmp_path / "data", name="first")
    (folder,) = (tmp_path / "data").iterdir()
    words = [str(LAB), "plot", folder.name, "--table", "csv"]
    assert call_here(words, tmp_path).out.startswith("label,")
    assert [each.name for each in tmp_path.iterdir()] == ["data"]
    ask = [*words, "--out", "one.svg"]
    assert call_here(ask, tmp_path).err.endswith("graph one.svg\n")
    assert (tmp_path / "one.svg").stat().st_size > 0
    assert call_here(ask, tmp_path).err.endswith("graph one.svg (replaced)\n")


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_one_clear_message_and_leaves_nothing_behind(what, tmp_path):
    args, words = WRONG[what]
    code = 3 if what == "no such folder" else 2
    assert_bad_input(tmp_path, ["plot", *args], words, code)


@pytest.mark.medium
def test_it_loads_no_library_that_it_does_not_need(tmp_path):
    write_run(tmp_path / "data")
    imported = heavy_imports(["plot", "small_2026_11_22_030000"], tmp_path)
    assert not {"torch", "ray", "gymnasium", "pandas", "matplotlib.pyplot"} & {
        *imported
    }
