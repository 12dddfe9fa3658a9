"""`--name X --resume`: one command that a job queue may repeat; and the code of a
missing run."""

import shutil

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.core.files import write_json
from slm_lab.records.origin import provenance
from slm_lab.records.run_source import RunSource
from slm_lab.storage.manifest import FORMAT, read_manifest
from slm_lab.storage.run_dir import RUN_BLOCK, RunDir, origin_of, runs_in
from slm_lab.studies.resume import alone
from slm_lab.testing.sessions import stop_at
from tests.faults.lab import (
    NAME,
    call_here,
    command,
    interrupt,
    lab,
    started_as,
    wait_until,
)
from tests.faults.lab import write_spec as write_file
from tests.support import made_once, parse, ppo, run_session

SPEC = ppo(env__max_frame=400)


def queued(folder, mode="train", *options):
    """The command of a job, with data in `folder`."""
    return command(folder, mode, "--name", "job", "--resume", *options)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A folder with a run called "job" that was stopped in its middle."""

    def make(folder):
        spec = parse(SPEC)
        root = folder / "data" / f"{NAME}_2026_11_22_030000"
        session = run_session(spec, root, on_row=stop_at(100))
        assert 0 < session.clock.frame < 400
        run_dir = RunDir(root, NAME)
        resolved = {NAME: spec.to_json()}
        about = {
            **provenance(0),
            "format": FORMAT,
            "name": "job",
            "mode": "train",
            "set": [],
        }
        write_json(run_dir.trial_spec_file(0), resolved)
        write_json(run_dir.spec_file, {**resolved, RUN_BLOCK: about})

    return made_once(tmp_path_factory, "stopped_job", make)


@pytest.fixture
def folder(stopped, tmp_path):
    shutil.copytree(stopped / "data", tmp_path / "data")
    write_file(tmp_path, SPEC)
    return tmp_path


@pytest.mark.medium
def test_the_same_command_begins_a_run_and_finds_it_done_the_next_time(tmp_path):
    write_file(tmp_path, SPEC)
    for heading in ("training", "resuming"):
        done = call_here(queued(tmp_path), tmp_path)
        assert done.code == 0, done.err
        assert done.out.startswith(heading)
    (run,) = runs_in(tmp_path / "data")
    assert run.label == "job"
    assert read_manifest(run.session(0, 0).manifest).finished


@pytest.mark.medium
def test_a_run_that_was_stopped_is_resumed(folder):
    done = call_here(queued(folder), folder)
    assert done.code == 0, done.err
    (run,) = runs_in(folder / "data")
    assert read_manifest(run.session(0, 0).manifest).frame == 400


@pytest.mark.medium
def test_a_larger_budget_needs_no_log_frequency_that_a_shorter_one_has_chosen(folder):
    write_file(folder, ppo(env__max_frame=4000, meta__log_frequency=1000))
    done = call_here(queued(folder, "train", "-s", "env.max_frame=800"), folder)
    assert done.code == 0, done.err
    (run,) = runs_in(folder / "data")
    assert read_manifest(run.session(0, 0).manifest).frame == 800
    typed = "-s", "env.max_frame=1200", "-s", "meta.log_frequency=70"
    refused = call_here(queued(folder, "train", *typed), folder)
    assert refused.code == 2
    assert "meta.log_frequency" in refused.err


def test_a_run_with_another_spec_is_one_line_and_stays_as_it_is(folder):
    (run,) = runs_in(folder / "data")
    before = run.spec_file.read_bytes()
    done = call_here(
        queued(folder, "train", "-s", "agent.net.optim_spec.lr=0.5"), folder
    )
    assert done.code == 2
    assert done.err.strip().splitlines()[-1] == (
        f"--name job --resume: {run.root} was started with another spec: "
        "agent.net.optim_spec.lr 0.001 (now 0.5); give this one another --name"
    )
    assert run.spec_file.read_bytes() == before


def test_a_search_of_that_name_is_not_trained(folder):
    (run,) = runs_in(folder / "data")
    run.event_log_file.touch()
    done = call_here(queued(folder), folder)
    assert done.code == 2
    assert f"--name job: {run.root} is a search; use the mode search" in done.err


@pytest.mark.medium
def test_a_search_begins_and_is_found_done_by_the_same_command(folder):
    spec = ppo(env__max_frame=400, meta__max_trial=2)
    spec["meta"]["confirm"] = {"top": 1, "max_session": 1}
    spec["search"] = {"agent.algorithm.gamma__uniform": [0.9, 0.99]}
    write_file(folder, spec)
    parent = ["--init-from", "job", "--which", "latest"]
    words = command(folder, "search", "--name", "sweep", "--resume", *parent)
    for heading in ("searching", "resuming the search"):
        done = call_here(words, folder)
        assert done.code == 0, done.err
        assert done.out.startswith(heading)
    (search,) = (run for run in runs_in(folder / "data") if run.is_search)
    confirmed = next(search.root.glob("confirm_t*"))
    name = search.initial_file.relative_to(search.root)
    assert (confirmed / name).read_bytes() == search.initial_file.read_bytes()
    recorded = origin_of(confirmed / f"{NAME}_spec.json")["init_from"]
    assert recorded == origin_of(search.spec_file)["init_from"]


def test_of_two_that_begin_at_once_the_second_is_told(folder):
    source = RunSource("spec.json", data_dir=folder / "data", label="job", resume=True)
    with (
        pytest.raises(UsageError, match="another command has just begun"),
        alone(source),
    ):
        pass
    with alone(
        RunSource("spec.json", data_dir=folder / "data", label="other", resume=True)
    ):
        pass


@pytest.mark.medium
def test_of_two_commands_at_once_one_trains(tmp_path):
    write_file(tmp_path, ppo(env__max_frame=10**7))
    (tmp_path / "second").mkdir()
    with (
        started_as(tmp_path, queued(tmp_path)) as first,
        started_as(tmp_path / "second", queued(tmp_path)) as second,
    ):
        both = first, second
        wait_until(lambda: any(each.process.poll() is not None for each in both))
        refused, other = both if first.process.poll() is not None else (second, first)
        ended = refused.end()
        assert ended.code == 2
        assert (
            "is being trained by process" in ended.err or "has just begun" in ended.err
        )
        assert len(ended.err.strip().splitlines()) == 1
        wait_until(lambda: list((tmp_path / "data").glob("*/info/*.csv")))
        interrupt(other)
        assert other.end().code == 130
    assert len(runs_in(tmp_path / "data")) == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["train", "--resume"], "--resume needs the --name of the run"),
        (
            ["dev", "--name", "a", "--resume"],
            "--resume works only with train and search",
        ),
        (["train@job", "--resume"], "--resume works only where a run begins"),
    ],
)
def test_what_resume_needs_is_said(folder, words, line):
    done = call_here(command(folder, *words), folder)
    assert done.code == 2
    assert line in done.err


MISSING = [
    ["run", "train@nothing"],
    ["run", "search@nothing"],
    ["run", "eval@nothing"],
    ["run", "enjoy@latest~7"],
    ["run", "eval@nothing.zip"],
    ["watch", "nothing"],
    ["doctor", "nothing"],
    ["diff", "latest", "nothing"],
    ["export", "nothing", "--to", "zip"],
    ["plot", "nothing"],
    ["compare", "--resume", "nothing"],
]


@pytest.mark.parametrize("words", MISSING, ids=" ".join)
def test_a_missing_run_has_a_code_of_its_own(folder, words):
    done = lab(folder, *words)
    assert done.code == 3, done.err
    assert "there is no" in done.err or "the oldest" in done.err


def test_bad_input_keeps_its_code(folder):
    for words in (["run", "nothing.json"], ["run", "train@"], ["run", "eval@data"]):
        assert lab(folder, *words).code == 2, words
