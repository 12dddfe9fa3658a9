"""`slm-lab run SPEC NAME search` from beginning to end: stopped, killed, and
resumed."""

import csv
import json
import os
import re
import shlex
import signal
from collections import Counter

import pytest

from slm_lab.records.event_log import Began, Confirmed, Ended, EventLog, Reported
from slm_lab.storage.run_dir import RunDir
from tests.faults.lab import (
    LAB,
    NAME,
    PATIENCE,
    all_gone,
    call,
    call_here,
    children_of,
    command,
    interrupt,
    repeatable,
    run,
    run_folder,
    run_here,
    started,
    wait_until,
    write_spec,
)
from tests.support import actor_critic, ppo


def confirming(running):
    """A Session of a confirmation run, once it trains."""
    if not list(running.data.glob("data/*/confirm_t*/log/*_s0.log")):
        return None
    return running.session(0)


LR = "agent.net.optim_spec.lr"
GAMMA = "agent.algorithm.gamma"


def searching(search, make=ppo, **changes):
    """A spec of one Session that searches, with a row every 400 frames."""
    sizes = {"env__max_frame": 2400, "meta__log_frequency": 400, "meta__random_seed": 5}
    return make(**{**sizes, "search": search, **changes})


def long(**changes):
    """A search of four trials of some seconds, one at a time, with a checkpoint at
    every row."""
    all_cores = {"cpu": len(os.sched_getaffinity(0))}
    sizes = {
        "env__max_frame": 40_000,
        "meta__save_interval": 0,
        "meta__max_trial": 4,
        "meta__search_resources": all_cores,
    }
    return searching({f"{LR}__loguniform": [1e-4, 1e-2]}, **{**sizes, **changes})


def run_dir(folder):
    return RunDir(run_folder(folder), NAME)


def events(folder, kind=None):
    """The events in the log of the only search; empty before there is one."""
    found = list((folder / "data").glob(f"*/{NAME}_search.jsonl"))
    recorded = list(EventLog(found[0]).read()) if found else []
    if kind is None:
        return recorded
    return [event for event in recorded if isinstance(event, kind)]


def table(folder):
    """By trial the line of `experiment_df.csv`."""
    text = (run_folder(folder) / f"{NAME}_experiment_df.csv").read_text()
    lines = csv.DictReader(text.splitlines())
    return {int(line["trial"]): line for line in lines}


def trial_rows(folder, trial):
    return repeatable(run_dir(folder).session(trial, 0).rows)


@pytest.mark.medium
def test_a_search_without_a_score_names_no_best_trial(folder):
    """An episode of Pendulum has 200 steps."""
    short = {"env__name": "Pendulum-v1", "env__max_frame": 96}
    write_spec(folder, searching({f"{LR}__grid_search": [1e-3, 1e-2]}, **short))
    done = run_here(folder, "search")
    assert done.out.splitlines()[-1].startswith("no trial has a score")
    assert "next:" not in done.out


@pytest.mark.medium
def test_a_grid_search_runs_every_point_once_and_writes_all_results(folder):
    write_spec(
        folder,
        searching({f"{LR}__grid_search": [1e-3, 1e-2], f"{GAMMA}__choice": [0.9]}),
    )
    done = run_here(folder, "search")
    *_, heading, play, again = done.out.splitlines()
    assert heading == "next:"
    words = [shlex.split(line, comments=True) for line in (play, again)]
    root = str(run_folder(folder))
    assert words[0] == ["slm-lab", "run", f"eval@{root}"]
    assert words[1][:3] == ["slm-lab", "run", f"search@{root}"]
    assert call_here([str(LAB), *words[0][1:], "--episodes", "1"], folder).code == 0
    found = table(folder)
    assert sorted(float(line[LR]) for line in found.values()) == [1e-3, 1e-2]
    assert {line["status"] for line in found.values()} == {"finished"}
    assert [float(line["frame"]) for line in found.values()] == [2400, 2400]
    names = {path.name for path in run_folder(folder).iterdir()}
    assert {
        f"{NAME}_spec.json",
        f"{NAME}_t0_spec.json",
        f"{NAME}_t1_spec.json",
    } <= names
    assert {f"{NAME}_experiment_graph.png", f"{NAME}_experiment_graph.html"} <= names
    assert f"{NAME}_multi_trial_graph_mean_returns_vs_frames.png" in names
    assert not any("t0_trial_graph" in name for name in names), "they are in graph/"
    assert trial_rows(folder, 0) != trial_rows(folder, 1), "each has its own seeds"


@pytest.mark.slow
def test_a_trial_equals_a_separate_run_of_its_spec(folder):
    """Seeds differ between a trial and a run, so the first trial gets those of the run
    here."""
    write_spec(folder, searching({f"{LR}__grid_search": [1e-3]}))
    run(folder, "search")
    spec = run_folder(folder) / f"{NAME}_t0_spec.json"
    args = [str(LAB), "run", str(spec), NAME, "train", "--data", str(folder / "alone")]
    assert call(args, folder).code == 0
    (alone,) = (folder / "alone").glob(f"{NAME}_*")
    expected = repeatable(RunDir(alone, NAME).session(0, 0).rows)
    assert trial_rows(folder, 0) == expected


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The rows of every trial of the long search, and its log, without an
    interruption."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    write_spec(folder, long())
    run(folder, "search")
    return {trial: trial_rows(folder, trial) for trial in range(4)}, events(
        folder, Ended
    )


def under_way(folder):
    """The running trials with at least ten reports, once a trial has ended."""
    over = noted(folder, "ended")
    recorded = noted(folder, "reported")
    return over and [
        trial for trial, count in recorded.items() if trial not in over and count > 9
    ]


def noted(folder, kind):
    """By trial how many events of a kind there are; quicker than `events`, for a
    poll."""
    pattern = rf'^{{"event": "{kind}", "trial": (\d+),'
    files = (folder / "data").glob(f"*/{NAME}_search.jsonl")
    return Counter(
        found for file in files for found in re.findall(pattern, file.read_text(), re.M)
    )


def ends(found):
    return {event.trial: (event.status, event.frame, event.score) for event in found}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "ctrl-c"])
def test_a_resumed_search_ends_like_an_uninterrupted_one(folder, how, uninterrupted):
    write_spec(folder, long())
    with started(folder, "search") as running:
        wait_until(lambda: under_way(folder))
        left = running.children()
        if how == "kill":
            os.kill(running.pid, signal.SIGKILL)
            running.process.wait()
        else:
            interrupt(running)
            done = running.end()
            assert done.code == 130
            assert f"search@{run_folder(folder)}" in done.out
        wait_until(lambda: all_gone(left))
    before = events(folder)
    over = {event.trial for event in before if isinstance(event, Ended)}
    unfinished = {event.trial for event in before if isinstance(event, Began)} - over
    assert over
    assert unfinished
    run(folder, "search@latest")
    after = events(folder)[len(before) :]
    assert not over & {event.trial for event in after if isinstance(event, Began)}
    for trial in unfinished:
        log = run_dir(folder).session(trial, 0).log.read_text()
        assert "resuming at frame" in log, "it did not restart"
    rows, ended = uninterrupted
    assert {trial: trial_rows(folder, trial) for trial in range(4)} == rows
    assert ends(events(folder, Ended)) == ends(ended)


@pytest.mark.slow
def test_a_trial_whose_process_is_killed_restarts_from_its_checkpoint(
    folder, uninterrupted
):
    write_spec(folder, long())
    with started(folder, "search") as running:
        wait_until(lambda: noted(folder, "reported")["0"] > 40)
        running.session(0).parent().kill()
        done = running.end()
    assert done.outcome == (0, "")
    restarts = [row["restarts"] for row in table(folder).values()]
    assert sorted(restarts) == ["0", "0", "0", "1"]
    assert {trial: trial_rows(folder, trial) for trial in range(4)} == uninterrupted[0]


@pytest.mark.slow
def test_a_search_whose_fork_server_is_killed_stops_and_can_be_resumed(folder):
    write_spec(folder, long(meta__max_trial=2))
    with started(folder, "search") as running:
        wait_until(lambda: under_way(folder))
        for child in children_of(running.pid, recursive=False):
            if children_of(child.pid):
                child.kill()
        done = running.end()
    assert done.code == 1
    assert "lost its fork server" in done.err
    assert "Traceback" not in done.err
    assert "resume with: slm-lab run search@" in done.out.replace("\n", " ")
    assert [event.error for event in events(folder, Ended)] == [None]
    run(folder, "search@latest")


@pytest.mark.slow
def test_a_trial_that_fails_is_reported_and_the_others_end(folder):
    write_spec(
        folder, searching({f"{LR}__grid_search": [1e-3, 1e38]}, make=actor_critic)
    )
    done = call(command(folder, "search"), folder)
    assert done.code == 0
    assert "t1 failed" in done.err
    assert "1 of 2 trials failed" in done.err
    failed = table(folder)[1]
    assert (failed["status"], failed["score"], failed["total_reward_ma"]) == (
        "failed",
        "",
        "",
    )
    assert "the loss is nan" in failed["error"]
    assert failed["restarts"] == "0", "it would fail again"
    assert table(folder)[0]["status"] == "finished"


@pytest.mark.slow
def test_where_every_trial_fails_the_search_has_failed(folder):
    write_spec(folder, searching({f"{LR}__grid_search": [1e38]}, make=actor_critic))
    assert call(command(folder, "search"), folder).code == 1


@pytest.mark.slow
def test_the_best_trials_are_repeated_with_fresh_seeds(folder):
    confirm = {"top": 2, "max_session": 2}
    write_spec(
        folder,
        searching({f"{LR}__grid_search": [1e-5, 1e-3, 1e-2]}, meta__confirm=confirm),
    )
    run(folder, "search")
    confirmed = {event.trial: event.scores for event in events(folder, Confirmed)}
    best = sorted(table(folder).values(), key=lambda line: -float(line["score"]))[:2]
    assert set(confirmed) == {int(line["trial"]) for line in best}
    assert all(len(set(scores)) == 2 for scores in confirmed.values())
    first = run_folder(folder) / "best_0.json"
    content = json.loads(first.read_text())[NAME]
    assert content["meta"]["max_session"] == 2
    assert "search" not in content
    assert str(content["agent"]["net"]["optim_spec"]["lr"]) == best[0][LR]
    args = [str(LAB), "run", str(first), NAME, "train", "--data", str(folder / "again")]
    assert call(args, folder).code == 0
    (again,) = (folder / "again").glob(f"{NAME}_*")
    rows = [repeatable(RunDir(again, NAME).session(0, s).rows) for s in range(2)]
    column = rows[0][0].index("final_return")
    scores = tuple(float(each[-1][column]) for each in rows)
    assert scores == pytest.approx(confirmed[int(best[0]["trial"])])
    run(folder, "search@latest")
    assert len(events(folder, Confirmed)) == 2, "nothing was run again"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["shared", "synced", "all_reduce", "actor_learner"])
def test_every_way_of_parallel_training_is_searched_over(folder, mode):
    make = ppo
    if mode == "synced":
        make = actor_critic
    optimizer = {"name": "GlobalAdam", "lr": 1e-3}
    workers = 2
    if mode == "actor_learner":
        workers = 1
    together = {"meta__distributed": mode, "meta__max_session": workers}
    scheduler = {"meta__search_scheduler": {"grace_period": 800, "reduction_factor": 2}}
    write_spec(
        folder,
        searching(
            {f"{LR}__loguniform": [1e-4, 1e-2]},
            make,
            agent__net__optim_spec=optimizer,
            meta__max_trial=2,
            **together,
            **scheduler,
        ),
    )
    run(folder, "search")
    assert {line["status"] for line in table(folder).values()} <= {
        "finished",
        "stopped",
    }
    assert events(folder, Reported)


@pytest.mark.slow
def test_trials_run_on_both_nodes_of_a_cluster(folder, cluster):
    write_spec(folder, long(env__max_frame=12_000, meta__search_resources={}))
    run(folder, "search", "--cluster", cluster.address)
    assert {line["status"] for line in table(folder).values()} == {"finished"}
    for trial in range(4):
        assert len(trial_rows(folder, trial)) == 31
        assert run_dir(folder).session(trial, 0).manifest.is_file()


@pytest.mark.slow
def test_enjoy_plays_the_best_or_a_chosen_trial(folder):
    write_spec(folder, searching({f"{LR}__grid_search": [1e-5, 1e-2]}))
    run(folder, "search")
    found = run_folder(folder)
    best = max(table(folder).values(), key=lambda line: float(line["score"]))["trial"]
    other = 1 - int(best)
    for source, trial in ((found, best), (f"{found}:t{other}", other)):
        played = run(folder, f"eval@{source}", "--episodes", "2")
        assert f"evaluating t{trial} of the search" in played.out
    wrong = call(command(folder, f"eval@{found}:t7", "--episodes", "2"), folder)
    assert wrong.code == 2
    assert "t0, t1" in wrong.err
    assert call(command(folder, "eval@latest"), folder).code == 3, "a search is no run"
    assert call(command(folder, f"train@{found}"), folder).code == 2


@pytest.mark.slow
def test_a_second_ctrl_c_ends_all_processes_at_once(folder):
    write_spec(folder, long())
    with started(folder, "search") as running:
        wait_until(lambda: noted(folder, "reported"))
        left = running.children()
        # so that it takes both in before it acts on either
        os.kill(running.pid, signal.SIGSTOP)
        interrupt(running)
        os.kill(running.pid, signal.SIGTERM)
        os.kill(running.pid, signal.SIGCONT)
        assert running.end().code == 130
        wait_until(lambda: all_gone(left))


@pytest.mark.slow
def test_confirmation_runs_decide_and_a_killed_seed_is_retried(folder):
    """More trials are to be confirmed than have finished."""
    confirm = {"top": 9, "max_session": 2}
    write_spec(
        folder,
        long(meta__confirm=confirm, meta__search_scheduler={"grace_period": 10_000}),
    )
    with started(folder, "search") as running:
        again = wait_until(lambda: confirming(running))
        again.kill()
        done = running.end(4 * PATIENCE)
    assert (done.code, done.err) == (0, "")
    found = run_folder(folder)
    with (found / f"{NAME}_confirmed.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    means = [float(line["confirmed_mean"]) for line in lines]
    assert means == sorted(means, reverse=True)
    assert all(int(line["seeds"]) == 2 for line in lines)
    assert len(list(found.glob("best_*.json"))) == len(lines)
    best = json.loads((found / "best_0.json").read_text())[NAME]
    assert (
        str(best["agent"]["net"]["optim_spec"]["lr"])
        == table(folder)[int(lines[0]["trial"])][LR]
    )
    assert f"result: t{lines[0]['trial']} with" in done.out
    more = call(command(folder, "search@latest"), folder)
    assert (more.code, more.err) == (0, "")


@pytest.mark.slow
def test_a_higher_restart_limit_resumes_failed_trials(folder):
    """A trial that is killed, and is retried only after the limit is raised."""
    write_spec(folder, long(meta__max_trial=1, meta__max_restart=0))
    with started(folder, "search") as running:
        wait_until(lambda: noted(folder, "reported")["0"] > 10)
        running.session(0).kill()
        assert running.end().code == 1
    done = call(command(folder, "search@latest", "-s", "meta.max_restart=1"), folder)
    assert (done.code, done.err) == (0, "")
    assert [event.status for event in events(folder, Ended)] == ["failed", "finished"]


@pytest.mark.slow
def test_a_finished_search_can_be_extended(folder):
    write_spec(folder, searching({f"{LR}__loguniform": [1e-4, 1e-2]}))
    assert call(command(folder, "search"), folder).code == 0
    more = call(command(folder, "search@latest", "-s", "meta.max_trial=3"), folder)
    assert (more.code, more.err) == (0, "")
    assert sorted(event.trial for event in events(folder, Ended)) == [0, 1, 2]
    assert len({line[LR] for line in table(folder).values()}) == 3


@pytest.mark.slow
def test_only_the_best_keep_their_models(folder):
    write_spec(folder, searching({f"{LR}__grid_search": [1e-5, 1e-3, 1e-2]}))
    assert call(command(folder, "search", "--keep", "1"), folder).code == 0
    best = max(table(folder).values(), key=lambda line: float(line["score"]))
    kept = {
        path.name.split("_")[1] for path in (run_folder(folder) / "model").iterdir()
    }
    assert kept == {f"t{best['trial']}"}


@pytest.mark.slow
def test_an_unwritable_home_directory_does_not_fail_a_search(folder, monkeypatch):
    monkeypatch.setenv("HOME", "/proc/none")
    monkeypatch.setenv("MPLCONFIGDIR", str(folder))
    write_spec(folder, searching({f"{LR}__grid_search": [1e-3]}))
    done = call(command(folder, "search"), folder)
    assert (done.code, done.err) == (0, "")
