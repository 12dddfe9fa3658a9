"""Tags and notes of a run."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.records.annotations import (
    LONGEST_TAG,
    MOST_TAGS,
    Annotations,
    annotate,
    read_annotations,
)
from slm_lab.records.lock import RunLock
from slm_lab.records.overview import Overview, overview_of, varied_params
from slm_lab.storage.run_dir import RunDir
from tests.support import ppo
from tests.unit.records.runs import write_ended


def add_ten(root, name, worker):
    for i in range(10):
        annotate(RunDir(root, name), add=[f"w{worker} {i}"])


def test_what_is_added_and_removed_is_read_again(tmp_path):
    run = write_ended(tmp_path, "one", note="from the start")
    assert read_annotations(run) == Annotations((), "from the start")
    annotate(run, add=["b", "a", "a"])
    assert read_annotations(run) == Annotations(("a", "b"), "from the start")
    annotate(run, remove=["b", "never there"], note="changed")
    assert read_annotations(run) == Annotations(("a",), "changed")
    annotate(run, note="")
    assert read_annotations(run).note == ""


@pytest.mark.medium
def test_processes_that_tag_one_run_at_once_lose_nothing(tmp_path):
    run = write_ended(tmp_path, "one")
    context = get_context("spawn")
    workers = [
        context.Process(target=add_ten, args=(run.root, "one", worker))
        for worker in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(read_annotations(run).tags) == 30
    assert not list(run.root.glob(".*.tmp"))


def test_threads_that_tag_one_run_at_once_lose_nothing(tmp_path):
    run = write_ended(tmp_path, "one")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: annotate(run, add=[f"t{i}"]), range(40)))
    assert len(read_annotations(run).tags) == 40


def test_a_run_can_be_tagged_while_it_trains(tmp_path):
    run = write_ended(tmp_path, "one")
    lock = RunLock(run.root)
    annotate(run, add=["live"])
    lock.release()
    assert read_annotations(run).tags == ("live",)


def test_a_moved_or_copied_run_keeps_them(tmp_path):
    run = write_ended(tmp_path, "one")
    annotate(run, add=["kept"])
    copied = shutil.copytree(run.root, tmp_path / "there" / "copy")
    assert read_annotations(RunDir.at(copied)).tags == ("kept",)


@pytest.mark.parametrize(
    "tag", ["", " a", "a ", "a=b", "a,b", "a\nb", "x" * (LONGEST_TAG + 1)]
)
def test_what_is_no_tag_is_refused(tag, tmp_path):
    run = write_ended(tmp_path, "one")
    with pytest.raises(UsageError, match="tag "):
        annotate(run, add=["fine", tag])
    assert read_annotations(run).tags == ()


def test_there_may_not_be_too_many(tmp_path):
    run = write_ended(tmp_path, "one")
    annotate(run, add=[str(i) for i in range(MOST_TAGS)])
    with pytest.raises(UsageError, match="may have 50"):
        annotate(run, add=["one more"])


def test_a_damaged_file_has_none(tmp_path):
    run = write_ended(tmp_path, "one")
    run.annotations_file.write_text('{"tags": [3, "a"], "note": 7}')
    assert read_annotations(run) == Annotations(("a",), "")


def test_columns_are_the_keys_in_which_runs_of_one_kind_differ(tmp_path):
    runs = [
        write_ended(tmp_path, f"run{i}", ppo(agent__algorithm__gamma=gamma, **more))
        for i, (gamma, more) in enumerate(
            [
                (0.9, {}),
                (0.99, {}),
                (0.999, {"env__max_frame": 2000}),
                (0.99, {"env__name": "Acrobot-v1", "env__num_envs": 2}),
            ]
        )
    ]
    overviews = [overview_of(run) for run in runs]
    varied = varied_params(overviews)
    assert varied[0] == "agent.algorithm.gamma"  # three values
    assert "env.max_frame" in varied
    assert not {"env.name", "env.num_envs"} & {*varied}  # of another environment
    assert varied_params(overviews[:1]) == varied_params([]) == []


def test_a_schedule_that_ends_with_the_budget_is_no_column():
    def run(budget, end):
        of = {"env.max_frame": budget, "agent.net.lr_scheduler_spec.frame": end}
        return Overview(env="CartPole-v1", params=of)

    assert varied_params([run(100, 100), run(200, 200)]) == ["env.max_frame"]
    varied = varied_params([run(100, 100), run(100, 50)])
    assert varied == ["agent.net.lr_scheduler_spec.frame"]
