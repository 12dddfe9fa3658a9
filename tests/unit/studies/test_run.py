import json
from contextlib import nullcontext

import pytest

from slm_lab.core.errors import SpecError, UsageError
from slm_lab.records.run_source import RunSource
from slm_lab.storage.manifest import Manifest
from slm_lab.storage.run_dir import RUN_BLOCK
from slm_lab.studies.run import PreparedRun
from tests.support import ppo


def made_ready(folder, **changes):
    """The run of a spec, ready to start, and the provenance in its spec file."""
    file = folder / "spec.json"
    file.write_text(json.dumps({"small": ppo(**changes)}))
    run = PreparedRun(RunSource(str(file), "small", data_dir=folder / "data"))
    return run, json.loads(run.run_dir.spec_file.read_text())[RUN_BLOCK]


def test_the_values_of_each_rank_are_reported_and_recorded(tmp_path):
    together = {"meta__distributed": "all_reduce", "meta__max_session": 4}
    horizon = {"agent__algorithm__time_horizon": 32}
    run, about = made_ready(tmp_path, **together, **horizon)
    (note,) = run.notes
    assert note == (
        'each of 4 ranks has by meta.scale "linear": agent.algorithm.time_horizon 8 '
        "(of 32), "
        "agent.net.optim_spec.lr 0.004 (of 0.001)"
    )
    own = {"agent.algorithm.time_horizon": 8, "agent.net.optim_spec.lr": 0.004}
    assert about["each_rank"] == own


CRITIC = {**ppo()["agent"]["net"], "precision": "auto"}


@pytest.mark.parametrize(("has", "recorded"), [(True, "bf16"), (False, "float32")])
def test_the_precision_that_auto_is_here_is_recorded(
    tmp_path, monkeypatch, has, recorded
):
    """So that a resumed run has it too, on whatever machine."""
    monkeypatch.setattr("slm_lab.agent.net.layers.has_bf16", lambda device: has)
    auto = {"agent__net__precision": "auto", "agent__critic_net": CRITIC}
    run, _ = made_ready(tmp_path, agent__net__gpu="auto", **auto)
    run.release()
    for file in (run.run_dir.spec_file, run.run_dir.trial_spec_file(0)):
        agent = json.loads(file.read_text())["small"]["agent"]
        assert agent["net"]["precision"] == agent["critic_net"]["precision"] == recorded
        # without effect: it is where the actor is
        assert agent["critic_net"]["gpu"] is False
    sets = ("agent.net.precision=auto",)
    same = PreparedRun(
        RunSource(str(tmp_path / "spec.json"), "small", str(run.run_dir.root), sets)
    )
    same.release()
    assert same.spec == run.spec


def taken_up(folder, **changes):
    """The same, started and ready to be resumed."""
    run, _ = made_ready(folder, **changes)
    run.release()
    again = PreparedRun(
        RunSource(str(folder / "spec.json"), "small", str(run.run_dir.root))
    )
    again.release()
    return again


CONV = {
    "type": "ConvNet",
    "conv_hid_layers": [[8, 8, 8]],
    "shared": True,
    "optim_spec": {"name": "GlobalAdam", "lr": 1e-3},
}


@pytest.mark.parametrize("mode", [None, "sync"])
def test_episodes_that_cannot_be_resumed_are_reported(tmp_path, mode):
    pytest.importorskip("ale_py")
    env = {
        "name": "ALE/Pong-v5",
        "num_envs": 2,
        "max_frame": 1000,
        "vectorization_mode": mode,
    }
    again = taken_up(tmp_path, env=env, agent__net=CONV)
    notes = [
        note
        for note in again.notes
        if "the state of ALE/Pong-v5 cannot be saved" in note
    ]
    assert len(notes) == (mode is None)
    assert taken_up(tmp_path).notes == ()


def test_an_arc_that_cannot_see_the_environment_is_refused_before_there_is_a_run(
    tmp_path,
):
    layer = {"Linear": {"in_features": 5, "out_features": 8}}
    body = {"modules": {"body": {"Sequential": [layer]}}}
    net = {
        "type": "TorchArcNet",
        "arc": body,
        "optim_spec": {"name": "GlobalAdam", "lr": 1e-3},
    }
    with pytest.raises(
        SpecError, match=r"agent\.net\.arc\.modules\.body\.Sequential\.0\.Linear"
    ):
        made_ready(tmp_path, agent__net=net)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("gpu", True, r"gpu = true: torch sees no GPU here; use"),
        ("precision", "bf16", r"precision = .bf16.: .*no instructions"),
    ],
)
def test_what_this_machine_lacks_is_reported_before_a_run_is_created(
    tmp_path, monkeypatch, key, value, words
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(
        "slm_lab.agent.net.layers.cpu_capabilities", lambda: {"avx2": True}
    )
    with pytest.raises(SpecError, match=rf"agent\.net\.{words}"):
        made_ready(tmp_path, **{f"agent__net__{key}": value})
    assert not (tmp_path / "data").exists()
    made_ready(tmp_path, **{f"agent__net__{key}": "auto"})


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_finished_gpu_training_needs_no_gpu(tmp_path, monkeypatch, has_ended):
    monkeypatch.setattr(
        "slm_lab.studies.run.have_ended", lambda *_: ([has_ended], [None])
    )
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    run, _ = made_ready(tmp_path, agent__net__gpu=True)
    run.release()
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    request = RunSource(str(tmp_path / "spec.json"), "small", str(run.run_dir.root))
    with (
        nullcontext()
        if has_ended
        else pytest.raises(SpecError, match="torch sees no GPU here")
    ):
        PreparedRun(request)


@pytest.mark.parametrize(
    ("ending", "error", "frame", "saved", "row", "is_refused"),
    [
        ("finished", None, 1000, False, "1000", True),
        ("interrupted", None, 40, False, "40", True),
        ("interrupted", None, 40, False, "", False),
        ("interrupted", "killed before it could save", 40, False, "40", False),
        ("failed", "killed", 40, False, "40", False),
        ("finished", None, 1000, True, "1000", False),
    ],
)
def test_a_session_whose_checkpoint_is_missing_does_not_lose_its_rows(
    tmp_path, monkeypatch, ending, error, frame, saved, row, is_refused
):
    run, _ = made_ready(tmp_path)
    run.release()
    session = {"session": 0, "ending": ending, "frame": frame, "error": error}
    metrics = {"sessions": [session]}
    run.run_dir.trial_metrics_file(0).write_text(json.dumps(metrics))
    manifest = Manifest(frame, 1, {}, ending == "finished", {}, ()) if saved else None
    monkeypatch.setattr(
        "slm_lab.studies.run.have_ended", lambda *_: ([False], [manifest])
    )
    request = RunSource(str(tmp_path / "spec.json"), "small", str(run.run_dir.root))
    gone = (
        rf"Session 0 had reached frame {frame:,}, "
        r"but its checkpoint model/\S+ is missing"
    )
    run.run_dir.session(0, 0).rows.write_text(f"frame\n{row}\n" if row else "frame\n")
    with pytest.raises(UsageError, match=gone) if is_refused else nullcontext():
        restarts = "Session 0 has no checkpoint yet: it and its rows restart from zero"
        assert (restarts in PreparedRun(request).notes) is not saved


@pytest.mark.parametrize("mode", [False, "synced", "all_reduce"])
def test_nothing_is_reported_if_each_session_trains_with_the_spec(tmp_path, mode):
    alone = mode == "all_reduce"
    sessions = {"meta__distributed": mode, "meta__max_session": 1 if alone else 2}
    run, about = made_ready(tmp_path, **sessions)
    assert (run.notes, "each_rank" in about) == ((), False)
