"""`slm-lab fork`: without a change it repeats the run; stopped or killed it goes on."""

import json
import re
import shutil
import signal
from itertools import pairwise

import pytest

from slm_lab.storage.run_dir import RUN_BLOCK
from tests.faults.lab import (
    LAB,
    NAME,
    call_here,
    command,
    interrupt,
    lab,
    repeatable,
    run_here,
    started_as,
    wait_until,
    write_spec,
)
from tests.support import COSTS, made_once, ppo, soft

pytestmark = pytest.mark.medium
SLOW = pytest.mark.slow

SPEC = ppo(
    env__max_frame=4000,
    meta__keep_checkpoints=[1000, 2000],
    meta__max_session=2,
    meta__rigorous_eval=2,
    meta__eval_frequency=1000,
)


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A folder with a finished run of 4,000 frames, called "parent"."""

    def make(folder):
        write_spec(folder, SPEC)
        run_here(folder, "train", "--name", "parent")

    return made_once(tmp_path_factory, "forked", make)


@pytest.fixture
def folder(parent, tmp_path):
    return shutil.copytree(parent, tmp_path / "folder")


def fork(folder, *options):
    return lab(folder, "fork", "parent", "--data", folder / "data", *options)


def run_named(folder, name):
    (found,) = (
        file.parent
        for file in (folder / "data").glob(f"*/{NAME}_spec.json")
        if json.loads(file.read_text())[RUN_BLOCK]["name"] == name
    )
    return found


def rows_of(root):
    return {file.name: repeatable(file) for file in root.glob("info/*.csv")}


def forked_from(root):
    origin = json.loads((root / f"{NAME}_spec.json").read_text())[RUN_BLOCK]
    return origin["forked_from"]


@pytest.mark.parametrize(
    ("frame", "begun_at"),
    [(0, 0), (2000, 2000), (2500, 2000), pytest.param(300, 0, marks=SLOW)],
)
def test_a_fork_without_a_change_repeats_the_run(folder, frame, begun_at):
    done = fork(folder, "--frame", frame, "--name", "fork")
    assert done.code == 0, done.both
    text = " ".join(done.out.split())
    length = frame - begun_at
    assert (f"replaying {length:,} frames of" in text) is (length > 0)
    expected = rows_of(run_named(folder, "parent"))
    assert len(expected) == 4
    assert rows_of(run_named(folder, "fork")) == expected
    about = forked_from(run_named(folder, "fork"))
    assert about["run"] == run_named(folder, "parent").name
    assert about["frame"] == frame
    assert about["from"] == [begun_at, begun_at]
    assert about["is_replayed"]


def test_rows_differ_from_the_frame_on_and_not_before(folder):
    change = ["-s", "agent.net.optim_spec.lr=0.05"]
    assert fork(folder, "--frame", 2000, "--name", "fork", *change).code == 0
    before = rows_of(run_named(folder, "parent"))
    for name, rows in rows_of(run_named(folder, "fork")).items():
        head, *lines = rows
        at = head.index("frame")
        early = [line for line in lines if float(line[at]) <= 2000]
        assert early == before[name][1 : len(early) + 1]
        assert lines != before[name][1:]


@SLOW
def test_the_parent_may_be_deleted(folder):
    assert fork(folder, "--frame", 2000, "--name", "fork").code == 0
    expected = rows_of(run_named(folder, "fork"))
    shutil.rmtree(run_named(folder, "parent"))
    root = run_named(folder, "fork")
    done = call_here(
        command(
            folder,
            f"train@{root}",
            "-s",
            "env.max_frame=5000",
            "--schedules",
            "hold",
        ),
        folder,
    )
    assert done.code == 0, done.both
    assert all(
        rows[: len(expected[n])] == expected[n] for n, rows in rows_of(root).items()
    )


@SLOW
def test_a_fork_of_a_fork(folder):
    assert fork(folder, "--frame", 2000, "--name", "one").code == 0
    done = lab(folder, "fork", "one", "--frame", 3000, "--name", "two")
    assert done.code == 0, done.both
    assert rows_of(run_named(folder, "two")) == rows_of(run_named(folder, "parent"))


@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=SLOW)])
def test_a_replay_goes_on_after_a_stop(folder, how):
    """The replay from the parent's start is ended in its middle."""
    root = run_named(folder, "parent")
    for kept in root.glob("model/*_kept_*.json"):
        kept.unlink()
    words = [str(LAB), "fork", "parent", "--frame", "3000", "--name", "fork"]
    with started_as(folder, [*words, "--data", str(folder / "data")]) as running:
        begun = re.compile(rf"{NAME}_t0_s\d_latest.json")
        wait_until(
            lambda: any(
                begun.fullmatch(file.name) and file.parents[1] != root
                for file in (folder / "data").glob("*/model/*.json")
            )
        )
        if how == "stopped":
            interrupt(running)
        else:
            running.signal_group(signal.SIGKILL)
        running.end()
    fork_root = run_named(folder, "fork")
    assert not forked_from(fork_root)["is_replayed"]
    done = call_here(command(folder, f"train@{fork_root}"), folder)
    assert done.code == 0, done.both
    assert forked_from(fork_root)["is_replayed"]
    assert rows_of(fork_root) == rows_of(root)


def test_another_simulator_begins_fresh_episodes(folder):
    done = fork(
        folder, "--frame", 2000, "--name", "fork", "-s", "env.max_t=20", "--json"
    )
    assert done.code == 0, done.both
    assert "every episode begins anew at the fork" in " ".join(done.err.split())
    root = run_named(folder, "fork")
    head, *lines = rows_of(root)[f"{NAME}_t0_s0_session_df_train.csv"]
    at = head.index("total_reward")  # in CartPole the length of an episode
    returns = [float(line[at]) for line in lines[25:] if line[at]]
    assert returns
    assert max(returns) <= 20


@SLOW
def test_a_replay_memory_is_shared_with_kept_checkpoints(tmp_path):
    """The files of steps are named by several checkpoints, and hold no step twice."""
    spec = soft(
        "SoftActorCritic",
        env__max_frame=1200,
        agent__memory__max_size=5000,
        meta__keep_checkpoints=4,
    )
    write_spec(tmp_path, spec)
    run_here(tmp_path, "train", "--name", "parent")
    root = run_named(tmp_path, "parent")
    kept = [
        json.loads(file.read_text())["segments"]
        for file in sorted(root.glob("model/*_kept_*.json"))
    ]
    assert len(kept) == 4
    for earlier, later in pairwise(kept):
        assert earlier == later[: len(earlier)]
    assert fork(tmp_path, "--frame", 700, "--name", "fork").code == 0
    assert rows_of(run_named(tmp_path, "fork")) == rows_of(root)


REFUSED = {
    "agent.net.hid_layers=[8]": "agent.net.hid_layers = [8]: cannot change",
    "env.num_envs=8": "env.num_envs = 8: cannot change in a running state",
    "meta.max_session=3": "meta.max_session = 3: cannot change in a running state",
    "meta.random_seed=3": "meta.random_seed = 3: cannot change in a running state",
    "agent.net.optim_spec.name=RMSprop": "optim_spec.name = 'RMSprop': cannot change",
    "agent.algorithm.gamma=2": "agent.algorithm.gamma = 2: must be <= 1",
    "env.max_frame=1000": "nothing is left to train: the fork begins at frame 2,000",
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_cannot_change_is_refused_by_name(folder, change):
    done = fork(folder, "--frame", 2000, "-s", change)
    assert done.code == 2
    assert REFUSED[change] in " ".join(done.err.split())
    assert len(list((folder / "data").glob(f"{NAME}_*"))) == 1


def test_at_the_start_all_but_the_seed_may_change(folder):
    sets = ("-s", "agent.net.hid_layers=[8]", "-s", "env.num_envs=8")
    done = fork(folder, "--frame", 0, "--name", "fork", *sets)
    assert done.code == 0, done.both
    assert forked_from(run_named(folder, "fork"))["from"] == [0, 0]
    done = fork(folder, "--frame", 0, "-s", "meta.random_seed=3")
    assert done.code == 2
    assert REFUSED["meta.random_seed=3"] in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["parent", "--frame", "9000"], 2, "its newest checkpoint is at frame 4,000"),
        (["nobody"], 3, "there is no run folder nobody"),
        (["parent", "--frame", "-1"], 2, "Invalid value for '--frame'"),
    ],
)
def test_a_frame_or_a_run_that_does_not_exist(folder, words, code, message):
    done = lab(folder, "fork", *words, "--data", folder / "data")
    assert done.code == code
    assert message in " ".join(done.err.split())


def test_a_run_without_a_checkpoint_is_forked_at_its_start(folder):
    for file in run_named(folder, "parent").glob("model/*"):
        file.unlink()
    done = fork(folder)
    assert done.code == 2
    assert "has no checkpoint: --frame 0 forks it at its start" in done.err


@SLOW
def test_a_finished_run_is_continued_with_more_frames(folder):
    done = fork(folder, "--name", "fork")
    assert done.code == 2
    assert "nothing is left to train: the fork begins at frame 4,000" in " ".join(
        done.err.split()
    )
    more = ["-s", "env.max_frame=5000", "--schedules", "hold"]
    assert fork(folder, "--name", "fork", *more).code == 0
    assert forked_from(run_named(folder, "fork"))["frame"] == 4000


def test_a_frame_before_the_one_at_which_a_fork_left_its_parent(folder):
    assert fork(folder, "--frame", 2500, "--name", "fork", "-q").code == 0
    done = lab(folder, "fork", "fork", "--frame", 1000)
    assert done.code == 2
    parent = run_named(folder, "parent").name
    assert f"was {parent}; fork that one" in " ".join(done.err.split())


def test_a_frame_before_a_resume_with_other_schedules(folder):
    root = run_named(folder, "parent")
    more = ["-s", "env.max_frame=5000", "--schedules", "stretch"]
    assert call_here(command(folder, f"train@{root}", *more), folder).code == 0
    done = fork(folder, "--frame", 2000)
    assert done.code == 2
    assert "fork it at 4,000 or later" in " ".join(done.err.split())


@pytest.mark.parametrize("frame", [300, pytest.param(1000, marks=SLOW)])
def test_workers_in_virtual_time_are_forked_at_a_meeting(tmp_path, frame):
    """Each of them stands there as in the training that goes on."""
    spec = ppo(
        env__max_frame=2400,
        meta__distributed="shared",
        meta__max_session=2,
        meta__keep_checkpoints=3,
        meta__simulate={"costs": COSTS},
    )
    write_spec(tmp_path, spec)
    run_here(tmp_path, "train", "--name", "parent")
    root = run_named(tmp_path, "parent")
    kept = sorted(int(f.stem.split("_")[-1]) for f in root.glob("model/*_s0_kept_*"))
    assert 800 <= kept[0] < 2400 <= kept[-1]
    assert fork(tmp_path, "--frame", frame, "--name", "fork").code == 0
    assert rows_of(run_named(tmp_path, "fork")) == rows_of(root)


@SLOW
def test_a_frame_after_the_last_meeting_is_refused(tmp_path):
    spec = ppo(
        env__max_frame=2400,
        meta__distributed="shared",
        meta__max_session=2,
        meta__simulate={"costs": COSTS},
    )
    write_spec(tmp_path, spec)
    run_here(tmp_path, "train", "--name", "parent")
    done = fork(tmp_path, "--frame", 2300, "-s", "agent.algorithm.gamma=0.5")
    assert done.code == 2
    assert "its workers do not meet again after frame 2,300" in " ".join(
        done.err.split()
    )


def test_a_damaged_kept_checkpoint_is_passed_over(folder):
    root = run_named(folder, "parent")
    (file,) = root.glob(f"model/{NAME}_t0_s1_kept_*_2000.json")
    state = json.loads(file.read_text())["files"]["state"]["name"]
    (root / "model" / state).write_bytes(b"damaged")
    assert fork(folder, "--frame", 2500, "--name", "fork").code == 0
    assert forked_from(run_named(folder, "fork"))["from"] == [2000, 1000]
    assert rows_of(run_named(folder, "fork")) == rows_of(root)
