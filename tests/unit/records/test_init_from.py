"""`--init-from` on the command line: in every mode, in a search, and in a resume."""

import hashlib
import json
import shutil
from dataclasses import replace

import pytest
import torch

from slm_lab.core.errors import UsageError
from slm_lab.core.files import write_json
from slm_lab.parallel.task import SessionTask
from slm_lab.records.init_from import find_parent
from slm_lab.records.origin import provenance
from slm_lab.records.run_record import RunRecord
from slm_lab.session.initial import built_values, taken_names, values_of
from slm_lab.storage.checkpoint import write_state
from slm_lab.storage.manifest import FORMAT, read_manifest
from slm_lab.storage.run_dir import RUN_BLOCK, RunDir, newest_first, origin_of, runs_in
from tests.faults.lab import (
    NAME,
    call,
    call_here,
    command,
    started,
    wait_until,
    write_spec,
)
from tests.support import made_once, make_session, parse, ppo, run_session, soft

STILL = {"agent__net__optim_spec": {"name": "GlobalAdam", "lr": 1e-30}}
"""With this learning rate the weights at the end are those at the beginning."""
NORMALIZED = {"env__normalize_obs": True, "env__max_frame": 400}
PARENT = ppo(**NORMALIZED)
MODES = {
    "independent": {"meta__max_session": 2},
    "shared": {"meta__distributed": "shared", "meta__max_session": 2},
    "synced": {"meta__distributed": "synced", "meta__max_session": 2},
    "all_reduce": {"meta__distributed": "all_reduce", "meta__max_session": 2},
    "actor_learner": {"meta__distributed": "actor_learner", "meta__max_session": 2},
    "several trainings": {
        "meta__distributed": "all_reduce",
        "meta__max_session": 2,
        "meta__max_run": 2,
    },
}

SLOW = ("synced", "several trainings", "independent")
"""Modes that give their workers the weights as another does."""


def latest(folder):
    return newest_first(runs_in(folder / "data"))[0]


def weights(run, trial=0):
    """The latest weights of every Session with a checkpoint."""
    agents = RunRecord(run, trial).checkpoints
    return [
        values_of(agents.load(session, "latest").snapshot["flats"])
        for session in agents.begun()
    ]


def assert_same(after, before):
    """Asserts that weights are equal; the moments of value targets go on counting."""
    assert after.keys() == before.keys()
    for name, value in after.items():
        if not {"count", "mean", "m2"} & set(name.split(".")):
            torch.testing.assert_close(
                value, before[name], rtol=0, atol=1e-20, msg=name
            )


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A folder with a finished run called "parent"."""

    def make(folder):
        spec = parse(PARENT, NAME)
        root = folder / "data" / f"{NAME}_2026_11_22_030000"
        session = run_session(spec, root)
        run_dir = RunDir(root, NAME)
        resolved = {NAME: spec.to_json()}
        about = {
            **provenance(0),
            "format": FORMAT,
            "name": "parent",
            "mode": "train",
            "set": [],
        }
        write_json(run_dir.trial_spec_file(0), resolved)
        write_json(run_dir.spec_file, {**resolved, RUN_BLOCK: about})
        assert session.clock.frame == 400

    return made_once(tmp_path_factory, "parent", make)


@pytest.fixture
def folder(parent, tmp_path):
    """A folder with the parent in its data."""
    shutil.copytree(parent / "data", tmp_path / "data")
    write_spec(tmp_path, PARENT)
    return tmp_path


@pytest.mark.medium
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, marks=pytest.mark.slow if mode in SLOW else ())
        for mode in MODES
    ],
)
def test_the_weights_arrive_in_every_process_of_a_mode(folder, mode):
    before = weights(latest(folder))[0]
    write_spec(folder, ppo(**NORMALIZED, **STILL, **MODES[mode]))
    options = "--init-from", "parent", "--which", "latest"
    done = call(command(folder, "train", *options), folder)
    assert done.code == 0, done.err
    after = weights(latest(folder))
    assert len(after) == (
        1 if mode == "actor_learner" else 4 if "several" in mode else 2
    )
    for each in after:
        assert_same(each, before)


@pytest.mark.slow
def test_every_trial_of_a_search_begins_with_the_parent(folder):
    before = weights(latest(folder))[0]
    spec = ppo(**NORMALIZED, **STILL, meta__max_trial=2)
    spec["search"] = {"agent.algorithm.gamma__uniform": [0.9, 0.99]}
    write_spec(folder, spec)
    done = call(
        command(folder, "search", "--init-from", "parent", "--which", "latest"), folder
    )
    assert done.code == 0, done.err
    for trial in range(2):
        after = weights(latest(folder), trial)
        assert after
        for each in after:
            assert_same(each, before)


@pytest.mark.medium
def test_a_search_over_nets_that_do_not_fit_is_refused_before_it_begins(folder):
    spec = ppo(**NORMALIZED)
    spec["search"] = {"agent.net.hid_layers__choice": [[16], [32]]}
    write_spec(folder, spec)
    done = call_here(command(folder, "search", "--init-from", "parent"), folder)
    assert done.code == 2
    assert "net.hidden.0.weight is 16×4 in" in done.err
    assert "32×4 in this spec" in done.err
    assert len(runs_in(folder / "data")) == 1


@pytest.mark.medium
def test_the_run_records_its_parent_and_what_was_taken(folder):
    run = latest(folder)
    options = "--init-from", "parent", "--init-part", "net.body", "--which", "latest"
    done = call_here(command(folder, "train", *options), folder)
    assert done.code == 0, done.err
    assert "the run begins with net.body, the statistics of observations of" in done.out
    recorded = origin_of(latest(folder).spec_file)["init_from"]
    manifest = read_manifest(run.session(0, 0).manifest)
    assert recorded["run"] == run.root.name
    assert recorded["agent"] == "latest"
    assert recorded["frame"] == manifest.frame == 400
    assert recorded["parent_sha256"] == manifest.files["state"].sha256
    assert recorded["taken"] == ["net.body"]
    assert recorded["normalizers"] == ["observations"]
    listed = call_here(
        [*command(folder, "x")[:1], "runs", "--data", "data", "--json"], folder
    )
    assert f"--init-from {run.root.name}" in str(json.loads(listed.out))


@pytest.mark.medium
def test_a_run_killed_before_its_first_checkpoint_begins_again_without_its_parent(
    folder,
):
    before = weights(latest(folder))[0]
    parent = latest(folder)
    write_spec(folder, ppo(**NORMALIZED, **STILL))
    with started(
        folder, "train", "--init-from", "parent", "--which", "latest"
    ) as running:
        wait_until(
            lambda: len(runs_in(folder / "data")) == 2 and latest(folder) != parent
        )
        running.process.kill()
        running.process.wait()
    run = latest(folder)
    shutil.rmtree(parent.root)
    for file in run.root.glob("model/small*"):
        file.unlink()
    for file in [*run.root.glob("info/*"), *run.root.glob("*_metrics_*")]:
        file.unlink()
    done = call_here(command(folder, f"train@{run.root.name}"), folder)
    assert done.code == 0, done.err
    (after,) = weights(run)
    assert_same(after, before)


@pytest.mark.medium
def test_a_run_without_checkpoint_whose_first_weights_are_lost_is_refused(folder):
    parent = latest(folder)
    done = call_here(command(folder, "train", "--init-from", "parent"), folder)
    assert done.code == 0, done.err
    run = latest(folder)
    assert run != parent
    for file in run.root.glob("model/*"):
        file.unlink()
    for file in run.root.glob("info/*"):
        file.unlink()
    for file in run.root.glob("*_metrics_*"):
        file.unlink()
    done = call_here(command(folder, f"train@{run.root.name}"), folder)
    assert done.code == 2
    assert "initial.pt is missing or damaged" in done.err
    assert len(done.err.strip().splitlines()) == 1


REFUSED = {
    "a part that is missing": (
        {},
        ["--init-part", "net.bdy"],
        "this spec has no part net.bdy; did you mean net.body?",
    ),
    "another shape": (
        {"agent__net__hid_layers": [32]},
        [],
        "net.hidden.0.weight is 16×4 in data/",
    ),
    "fewer layers": (
        {"agent__net__hid_layers": [16, 16]},
        [],
        "net.hidden.1.weight is missing in data/",
    ),
    "no normaliser": (
        {"env__normalize_obs": False},
        [],
        "was trained with env.normalize_obs",
    ),
    "another list of parts": (
        {"env__normalize_obs": ["obs"]},
        [],
        "was trained with env.normalize_obs = true; set it to true",
    ),
    "no such Session": (
        {},
        ["--session", "3"],
        "Session 3 has no agent; those with one: 0",
    ),
    "a part of nothing": ({}, [], "--init-part names what to take from a run"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_does_not_fit_is_one_line_before_a_folder_is_made(
    folder, why, monkeypatch
):
    monkeypatch.chdir(folder)
    changes, options, line = REFUSED[why]
    write_spec(folder, {**ppo(**{**NORMALIZED, **changes})})
    parent = (
        ["--init-from", "parent"]
        if why != "a part of nothing"
        else ["--init-part", "net"]
    )
    args = [*command(folder, "train", *parent, *options)]
    args[args.index("--data") + 1] = "data"
    done = call_here(args, folder)
    assert done.code == 2, done.out + done.err
    assert line in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert len(runs_in(folder / "data")) == 1


def test_a_run_that_is_missing_has_its_own_exit_code(folder):
    done = call_here(command(folder, "train", "--init-from", "nobody"), folder)
    assert done.code == 3
    assert "there is no run folder nobody" in done.err


@pytest.mark.parametrize("mode", ["train@parent", "eval@parent"])
def test_only_a_run_that_begins_takes_weights(folder, mode):
    done = call_here(command(folder, mode, "--init-from", "parent"), folder)
    assert done.code == 2
    assert "--init-from works only where a run begins" in done.err


def test_no_module_of_the_parent_is_imported(folder, monkeypatch):
    run = latest(folder)
    content = json.loads(run.spec_file.read_text())
    content[NAME]["env"]["name"] = "evil_module:Evil-v0"
    content["_run"]["imports"] = ["evil_module"]
    run.spec_file.write_text(json.dumps(content))
    (folder / "evil_module.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(folder)
    parent = find_parent("parent", [], None, None, folder / "data")
    assert parent.about["run"] == run.root.name


def test_a_file_with_code_in_it_is_not_unpickled(folder):
    run = latest(folder)
    manifest = read_manifest(run.session(0, 0).manifest)
    file = run.root / "model" / manifest.files["best"].name
    torch.save({"flats": Boom()}, file)
    content = json.loads(run.session(0, 0).manifest.read_text())
    content["files"]["best"]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    run.session(0, 0).manifest.write_text(json.dumps(content))
    done = call_here(command(folder, "train", "--init-from", "parent"), folder)
    assert done.code == 1
    assert "the lab did not write this file" in done.err
    assert not Boom.made


class Boom:
    """Unpickling it calls a function."""

    made = False

    def __reduce__(self):
        return _explode, ()


def _explode():
    Boom.made = True


@pytest.mark.medium
def test_a_shared_run_is_a_parent(folder):
    lab = command(folder, "x")[:1]
    done = call_here(
        [*lab, "export", "parent", "--to", "zip", "--out", "pole.zip"], folder
    )
    assert done.code == 0, done.err
    shutil.rmtree(latest(folder).root)
    done = call_here(command(folder, "train", "--init-from", "pole.zip"), folder)
    assert done.code == 0, done.err
    recorded = origin_of(latest(folder).spec_file)["init_from"]
    assert recorded["run"] == "pole.zip"


def test_weights_that_are_not_finite_are_refused(folder):
    parent = find_parent("parent", [], None, None, folder / "data")
    assert all(torch.isfinite(value).all() for value in parent.values.values())
    run = latest(folder)
    paths = run.session(0, 0)
    agents = RunRecord(run, 0).checkpoints
    state = agents.load(0, "best").snapshot
    state["flats"]["actor"]["vector"][0] = float("nan")
    file = run.root / "model" / read_manifest(paths.manifest).files["best"].name
    saved = write_state(file, state)
    content = json.loads(paths.manifest.read_text())
    content["files"]["best"] |= {"sha256": saved.sha256, "bytes": saved.bytes}
    paths.manifest.write_text(json.dumps(content))
    done = call_here(command(folder, "train", "--init-from", "parent"), folder)
    assert done.code == 1
    assert "weights of the network actor are not finite" in done.err


def test_the_temperature_is_taken_where_both_runs_tune_it(tmp_path):
    tuned = parse(soft("SoftActorCritic"))
    fixed = parse(soft("SoftActorCritic", agent__algorithm__fixed_alpha=0.2))
    values = []
    for n, spec in enumerate((tuned, fixed)):
        session = make_session(spec, tmp_path / str(n))
        values.append(built_values(session.agent.learner.flats))
        session.close()
    with_alpha, without = values
    assert "alpha.value" in taken_names(with_alpha, with_alpha, [], "parent")
    for built, saved in ((with_alpha, without), (without, with_alpha)):
        assert "alpha.value" not in taken_names(built, saved, [], "parent")


def test_a_critic_that_the_parent_does_not_have_is_named_with_the_parts_to_choose(
    tmp_path,
):
    session = make_session(parse(ppo()), tmp_path)
    built = built_values(session.agent.learner.flats)
    session.close()
    saved = {name: value for name, value in built.items() if name.startswith("net")}
    with pytest.raises(
        UsageError, match=r"parent has no part critic; its parts are net, net\.body"
    ):
        taken_names(built, saved, [], "parent")
    assert taken_names(built, saved, ["net"], "parent") == list(saved)


@pytest.mark.parametrize(
    ("first", "second", "heads", "fitting"),
    [(64, 64, 3, "net.body"), (64, 32, 2, "net.hidden.0"), (32, 64, 2, None)],
)
def test_an_error_of_shapes_advises_only_a_part_that_is_then_taken(
    first, second, heads, fitting
):
    def values(first, second, heads):
        return {
            "net.hidden.0.weight": torch.zeros(first, 4),
            "net.hidden.2.weight": torch.zeros(second, first),
            "net.heads.0.weight": torch.zeros(heads, second),
            "alpha": torch.zeros(()),
        }

    built, saved = values(first, second, heads), values(64, 64, 2)
    with pytest.raises(UsageError) as refused:
        taken_names(built, saved, [], "parent")
    advised = str(refused.value).partition("--init-part")[2].strip()
    assert advised == (fitting or "")
    if fitting:
        assert taken_names(built, saved, [advised], "parent")


def test_the_body_is_what_lies_before_the_outputs(tmp_path):
    session = make_session(
        parse(ppo(agent__net__log_std_init=-0.5, env__name="Pendulum-v1")), tmp_path
    )
    built = built_values(session.agent.learner.flats)
    session.close()
    body = taken_names(built, built, ["net.body"], "parent")
    assert body == ["net.hidden.0.weight", "net.hidden.0.bias"]
    assert "net.scale" in built


def test_a_node_of_a_cluster_gets_the_weights_that_a_fresh_session_begins_with(folder):
    launch = pytest.importorskip("slm_lab.parallel.ray.launch", reason="needs Ray")
    run = latest(folder)
    task = SessionTask(parse(PARENT), run, 0, 0, 0, 1, resume=False)
    assert launch._files_of(task) == {}
    run.initial_file.write_bytes(b"weights")
    assert launch._files_of(task) == {"model/initial.pt": b"weights"}
    resumed = launch._files_of(replace(task, resume=True))
    assert "model/initial.pt" not in resumed
    assert resumed


@pytest.mark.medium
def test_a_net_of_equal_shapes_that_computes_something_else_is_said(folder):
    write_spec(folder, ppo(**NORMALIZED, agent__net__hid_layers_activation="relu"))
    done = call_here(command(folder, "dev", "--init-from", "parent"), folder)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert 'agent.net.hid_layers_activation is "relu", and was "tanh" in' in said
