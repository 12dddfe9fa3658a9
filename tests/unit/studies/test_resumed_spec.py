"""A run keeps its resolved spec: on resume only given settings change."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace

import pytest

from slm_lab.core.errors import SpecError, UsageError
from slm_lab.core.recorded import differences, value_at
from slm_lab.metrics.reader import read_rows
from slm_lab.records.overview import RunStatus, overview_of
from slm_lab.records.run_source import RunSource
from slm_lab.storage.manifest import FORMAT, Manifest
from slm_lab.storage.run_dir import RUN_BLOCK
from slm_lab.studies import resume, run
from slm_lab.studies.run import PreparedRun
from tests.support import ppo
from tests.unit.charts.session import write_session

MANIFEST = Manifest(0, 0, {}, False, {}, ())
START = ("env=CartPole-v1", "env.max_frame=4096", "env.num_envs=2")


def template(folder, **changes):
    """A spec file in which the environment has no name yet."""
    file = folder / "t.json"
    changed = {"env__name": "${env}", "env__max_frame": 50_000, **changes}
    file.write_text(json.dumps({"t": ppo(**changed)}))
    return file


def made(file, folder, run, *sets, verb="train", **more):
    """A prepared run, whose folder another run may lock at once."""
    ready = PreparedRun(
        RunSource(str(file), "t", run, sets, data_dir=folder / "data", **more), verb
    )
    ready.release()
    return ready


def begun(file, *sets, **more):
    """A new run beside the file of its template; by default as `START` says."""
    return made(file, file.parent, None, *(sets or START), **more)


def resumed(file, *sets, **more):
    """The latest run beside the file, resumed."""
    return made(file, file.parent, "latest", *sets, **more)


def record(ready):
    return json.loads(ready.run_dir.spec_file.read_text())


@pytest.mark.parametrize(
    "sets", [(), ("env=CartPole-v1",), START, ("env.max_frame=4096",)]
)
def test_a_template_is_resumed_with_the_spec_it_was_started_with(tmp_path, sets):
    file = template(tmp_path)
    started = begun(file)
    own = started.run_dir.spec_file  # as in the command that a run prints
    for spec_file, target in ((file, "latest"), (own, started.run_dir.root)):
        again = made(spec_file, tmp_path, str(target), *sets)
        assert again.spec == started.spec
        assert again.root_seed == started.root_seed
        assert again.notes == ()


def test_another_value_of_a_variable_and_an_unknown_variable_are_refused(tmp_path):
    file = template(tmp_path)
    begun(file)
    with pytest.raises(
        SpecError, match=r"-s env = 'Acrobot-v1': .* started with \"CartPole-v1\""
    ):
        resumed(file, "env=Acrobot-v1")
    with pytest.raises(SpecError, match=r"no \$\{other\}"):
        resumed(file, "other=1")
    with pytest.raises(SpecError, match="must be key=value"):
        resumed(file, "env")


def test_a_setting_on_resume_changes_only_its_key(tmp_path):
    file = template(tmp_path)
    started = begun(file)
    longer = resumed(
        file,
        "env.max_frame=8192",
        "env=CartPole-v1",
        schedules="hold",
    )
    before, after = started.spec.to_json(), longer.spec.to_json()
    assert differences(before, after) == [("env.max_frame", 4096, 8192)]
    assert resumed(file).spec == longer.spec
    with pytest.raises(
        SpecError, match=r"env\.num_envs = 4: the run was started with 2"
    ):
        resumed(file, "env.num_envs=4")


FALLING = {"name": "linear_decay", "start_val": 1.0, "end_val": 0.1}
ENDS = (
    "agent.algorithm.clip_eps_spec.end_step",
    "agent.algorithm.entropy_coef_spec.end_step",
    "agent.net.lr_scheduler_spec.frame",
)


def scheduled(folder):
    """A run with a budget of 4096 frames, whose schedules end at 16 %, 50 % and 100 %
    of it."""
    file = template(
        folder,
        agent__algorithm__clip_eps_spec={
            **FALLING,
            "start_step": "8%",
            "end_step": "16%",
        },
        agent__algorithm__entropy_coef_spec={**FALLING, "end_step": "50%"},
        agent__net__lr_scheduler_spec={"name": "LinearToZero"},
    )
    return file, begun(file)


def frames_of(ready):
    """The ends of its schedules."""
    return [value_at(ready.spec.to_json(), path) for path in ENDS]


def test_a_larger_budget_is_refused_in_one_line_with_what_to_add(tmp_path):
    file, started = scheduled(tmp_path)
    before = started.run_dir.spec_file.read_bytes()
    with pytest.raises(UsageError) as caught:
        resumed(file, "env.max_frame=8192")
    line = str(caught.value)
    assert len(line.splitlines()) == 1
    assert all(
        f"{path} {end}" in line
        for path, end in zip(ENDS, (655, 2048, 4096), strict=True)
    )
    assert "--schedules stretch" in line
    assert "--schedules hold" in line
    assert started.run_dir.spec_file.read_bytes() == before
    settings = re.findall(r"-s (\S+)", line)
    assert [text.partition("=")[0] for text in settings] == list(ENDS)
    anew = resumed(file, "env.max_frame=8192", *settings)
    assert frames_of(anew) == [1310, 4096, 8192]


def test_what_is_suspicious_is_said_if_the_resume_is_accepted_and_only_then(
    tmp_path, caplog
):
    file = template(tmp_path)
    begun(file, *START, "meta.log_frequency=2000")
    caplog.clear()
    with pytest.raises(UsageError, match="--schedules"):
        resumed(file, "env.max_frame=8192")
    assert caplog.messages == []
    resumed(file, "env.max_frame=8192", schedules="hold")
    (line,) = caplog.messages
    assert "suspicious setting: meta.log_frequency = 2000" in line


@pytest.mark.parametrize("schedules", ["stretch", "hold"])
def test_stretched_schedules_keep_their_shares_and_held_ones_their_frames(
    tmp_path, schedules
):
    file, started = scheduled(tmp_path)
    longer = resumed(file, "env.max_frame=8192", schedules=schedules)
    ends = {"stretch": [1310, 4096, 8192], "hold": [655, 2048, 4096]}[schedules]
    assert frames_of(longer) == ends
    changed = differences(started.spec.to_json(), longer.spec.to_json())
    starts = [path for path, *_ in changed if path.endswith("start_step")]
    assert len(changed) == (5 if schedules == "stretch" else 1), changed
    assert starts == (
        ["agent.algorithm.clip_eps_spec.start_step"] if len(changed) > 1 else []
    )
    (about,) = record(longer)[RUN_BLOCK]["resumed"]
    assert about["schedules"] == schedules
    again = resumed(file, "env.max_frame=8192", schedules=schedules)
    assert again.spec == longer.spec, "a repeated command changes nothing"
    assert resumed(file).spec == longer.spec


@pytest.mark.parametrize("block", ["null", '{"name": "ConstantLR"}'])
def test_a_whole_schedule_may_be_set_anew_and_only_the_others_are_asked_for(
    tmp_path, block
):
    file, _ = scheduled(tmp_path)
    rate = ENDS[2].removesuffix(".frame")
    sets = ("env.max_frame=8192", f"{rate}={block}", f"{ENDS[0]}=80%")
    with pytest.raises(UsageError) as caught:
        resumed(file, *sets)
    assert re.findall(r"\S+ (?=\d+[,;])", str(caught.value)) == [f"{ENDS[1]} "]
    longer = resumed(file, *sets, f"{ENDS[1]}=null")
    assert frames_of(longer) == [6554, 8192, None]


def test_a_run_without_schedules_that_have_ended_just_trains_on(tmp_path):
    cosine = {"name": "CosineAnnealingLR", "T_max": 4096}
    later = {**FALLING, "end_step": 5_000}
    constant = {"start_val": 0.2}
    file = template(
        tmp_path,
        agent__algorithm__clip_eps_spec=constant,
        agent__algorithm__entropy_coef_spec=later,
        agent__net__lr_scheduler_spec=cosine,
    )
    started = begun(file)
    for schedules in (None, "stretch"):  # 5,000 frames are no share of 4,096
        longer = resumed(file, "env.max_frame=4900", schedules=schedules)
        assert longer.spec.agent == started.spec.agent


def test_a_much_larger_budget_keeps_the_rows_even_and_says_how_many_they_are(tmp_path):
    file, sets = template(tmp_path), ("env=CartPole-v1", "env.max_frame=1000")
    rows_apart = begun(file, *sets, "meta.log_frequency=null").spec.log_frequency
    assert rows_apart == 5
    longer = resumed(file, "env.max_frame=10000", schedules="hold")
    assert not any("meta.log_frequency" in note for note in longer.notes), (
        "as many as usual"
    )
    much_longer = resumed(file, "env.max_frame=1000000", schedules="hold")
    (note,) = (note for note in much_longer.notes if "meta.log_frequency" in note)
    assert "stays 5, as at the start: 200,000 rows" in note
    assert "-s meta.log_frequency=5000" in note
    assert much_longer.spec.log_frequency == 5
    assert resumed(file).notes == (), "it is said once"


def test_a_smaller_budget_keeps_schedules_and_log_frequency(tmp_path):
    file, started = scheduled(tmp_path)
    shorter = resumed(file, "env.max_frame=400")
    changed = differences(started.spec.to_json(), shorter.spec.to_json())
    assert changed == [("env.max_frame", 4096, 400)]


@pytest.mark.parametrize(
    ("together", "frames", "budget", "is_spent"),
    [
        (False, (3000, 2000), 2999, True),
        (False, (3000, 2000), 3000, False),
        (False, (5000, 4096), 4096, False),
        ("shared", (3000, 500), 3499, True),
        ("shared", (3000, 500), 3500, False),
    ],
)
def test_a_budget_that_is_spent_already_is_refused(
    tmp_path, together, frames, budget, is_spent
):
    meta = {"meta__distributed": together, "meta__max_session": 2}
    started = begun(template(tmp_path, **meta))
    saved = [replace(MANIFEST, frame=frame) for frame in frames]
    sets = ("env=CartPole-v1", f"env.max_frame={budget}")
    source = RunSource("t.json", "t", "latest", sets, data_dir=tmp_path / "data")
    before, spec = resume.resumed_spec(started.run_dir, source, run.CHANGES_OF_RESUME)
    with pytest.raises(SpecError, match="has trained") if is_spent else nullcontext():
        resume.check_budget(spec, before.env.max_frame, started.run_dir, saved)


def test_a_spec_file_changed_since_the_start_gives_one_note(tmp_path):
    file = template(tmp_path)
    started = begun(file)
    template(tmp_path, agent__algorithm__gamma=0.5, env__max_frame=60_000)
    again = resumed(file)
    assert again.spec == started.spec
    (note,) = again.notes
    assert note == (
        f"{file} has changed since the run was started, and the run keeps its own "
        "spec: agent.algorithm.gamma 0.5 (before: 0.99), env.max_frame 60000 (before: "
        "50000)"
    )
    file.write_text(json.dumps({"other": ppo()}))
    (note,) = resumed(file).notes
    assert note.endswith("it has no spec t")


def test_a_dev_run_is_resumed_with_its_short_spec_without_a_note(tmp_path):
    file = template(tmp_path, env__max_frame=1_000_000)
    started = begun(file, "env=CartPole-v1", verb="dev")
    again = made(file, tmp_path, str(started.run_dir.root))
    assert (again.spec, again.notes) == (started.spec, ())


def test_each_start_has_its_provenance_and_none_is_replaced(tmp_path):
    file = template(tmp_path)
    first = record(begun(file))[RUN_BLOCK]
    resumed(file, "env.max_frame=8192", schedules="hold")
    about = record(resumed(file))[RUN_BLOCK]
    assert about["format"] == FORMAT
    assert {key: about[key] for key in first} == first
    longer, same = about["resumed"]
    assert (longer["set"], same["set"]) == (["env.max_frame=8192"], [])
    assert first["started"] < longer["started"] < same["started"]
    for start in (longer, same):
        assert {
            "git_sha",
            "packages",
            "python",
            "machine",
            "command",
            "frames",
        } <= start.keys()


def test_other_versions_or_another_commit_are_noted_in_one_line_and_both_are_kept(
    tmp_path, monkeypatch
):
    file = template(tmp_path)
    begun(file)
    now = run.provenance(0)
    older = {
        **now,
        "packages": {**now["packages"], "torch": "1.0.0"},
        "git_sha": "0" * 40,
    }
    monkeypatch.setattr(run, "provenance", lambda seed: {**older, "random_seed": seed})
    again = resumed(file)
    (note,) = again.notes
    assert f"torch 1.0.0 (before: {now['packages']['torch']})" in note
    assert "commit 0000000 (before: " in note
    about = record(again)[RUN_BLOCK]
    versions = [each["packages"]["torch"] for each in (about, *about["resumed"])]
    assert versions == [now["packages"]["torch"], "1.0.0"]
    assert resumed(file).notes == (), "nothing has changed since the last"


@pytest.mark.parametrize("found", [None, FORMAT - 1, FORMAT + 1, "7"])
def test_a_run_of_another_format_is_not_trained_and_the_line_says_what_to_do(
    tmp_path, found
):
    file = template(tmp_path)
    started = begun(file)
    content = record(started)
    content[RUN_BLOCK]["format"] = found
    if found is None:
        del content[RUN_BLOCK]["format"]
    started.run_dir.spec_file.write_text(json.dumps(content))
    with pytest.raises(
        UsageError, match=f"this version resumes format {FORMAT}: "
    ) as caught:
        resumed(file)
    assert len(str(caught.value).splitlines()) == 1
    assert str(started.run_dir.root) in str(caught.value)
    assert ("still read this one" in str(caught.value)) == (found != FORMAT + 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [("set", "env=X"), ("set", [1]), ("packages", []), ("resumed", [3])],
)
def test_a_record_that_was_spoilt_is_one_clear_line(tmp_path, key, value):
    file = template(tmp_path)
    started = begun(file)
    content = record(started)
    content[RUN_BLOCK][key] = value
    started.run_dir.spec_file.write_text(json.dumps(content))
    with pytest.raises(SpecError, match=r"_run\."):
        resumed(file)


def with_metrics(ready, *endings):
    """Rows of the Sessions of a run, and metrics as it writes them at its end."""
    for session in range(len(endings)):
        write_session(ready.run_dir.session(0, session).rows, rows=20, seed=session)
    sessions = [
        {"session": n, "ending": each, "frame": 4096} for n, each in enumerate(endings)
    ]
    final = {"final_return": 12.5, "final_return_std": 0.5, "final_return_episodes": 40}
    metrics = {**final, "random_return": 20.0, "sessions": sessions}
    file = ready.run_dir.trial_metrics_file(0)
    for path in (file, ready.run_dir.root / "info" / file.name):
        path.write_text(json.dumps(metrics))
    return file


def test_a_finished_run_that_trains_on_is_no_longer_done(tmp_path, monkeypatch):
    started = begun(template(tmp_path, meta__max_session=2))
    file, run_dir = with_metrics(started, "finished", "finished"), started.run_dir
    assert (overview_of(run_dir).status, overview_of(run_dir).final_return) == (
        RunStatus.DONE,
        12.5,
    )
    manifests = [replace(MANIFEST, frame=4096)] * 2
    monkeypatch.setattr(run, "have_ended", lambda *_: ([True, False], manifests))
    resumed(tmp_path / "t.json", "env.max_frame=8192", schedules="hold")
    for path in (file, run_dir.root / "info" / file.name):
        metrics = json.loads(path.read_text())
        assert [each["ending"] for each in metrics["sessions"]] == [
            "finished",
            "interrupted",
        ]
        assert not [key for key in metrics if key.startswith("final_return")]
        assert metrics["random_return"] == 20.0
    recent = [
        read_rows(run_dir.session(0, s).rows)["recent_return"][-1] for s in range(2)
    ]
    summary = overview_of(run_dir)
    assert summary.status is RunStatus.STOPPED
    assert summary.final_return == pytest.approx(sum(recent) / 2)


def test_a_finished_run_that_is_only_drawn_again_stays_done(tmp_path, monkeypatch):
    started = begun(template(tmp_path))
    file = with_metrics(started, "finished")
    before = file.read_bytes()
    manifests = [replace(MANIFEST, frame=4096)]
    monkeypatch.setattr(run, "have_ended", lambda *_: ([True], manifests))
    resumed(
        tmp_path / "t.json",
    )
    assert file.read_bytes() == before
