"""Runs that learn from replay: stopped, killed and resumed, they equal uninterrupted
ones."""

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

from slm_lab.storage.intact import settle
from slm_lab.storage.manifest import previous_path, read_manifest
from slm_lab.testing.play import same
from slm_lab.testing.play import whole as whole_of
from slm_lab.testing.sessions import stop_at
from tests.support import make_session, parse, q_learning, rows, run_session
from tests.unit.storage.disk import Killed, faults

MAX_SIZE = 300
STOP = 900
END = 1200
"""The ring has wrapped more than once when the run is stopped."""

MEMORIES = {
    "uniform": {"name": "Replay"},
    "combined": {"name": "Replay", "use_cer": True},
    "mapped": {"name": "Replay", "storage": "memmap"},
    "on_device": {"name": "Replay", "storage": "device"},
    "prioritized": {
        "name": "PrioritizedReplay",
        "beta": {
            "name": "linear_decay",
            "start_val": 0.4,
            "end_val": 1.0,
            "start_step": 0,
            "end_step": END,
        },
    },
}


def spec_of(memory, num_envs=1, save_interval=0, **changes):
    return parse(
        q_learning(
            "DQN",
            agent__memory={"batch_size": 16, "max_size": MAX_SIZE, **MEMORIES[memory]},
            agent__algorithm__num_step_returns=3,
            env__num_envs=num_envs,
            env__max_frame=END,
            meta__save_interval=save_interval,
            **changes,
        )
    )


def assert_same_agent(one, other):
    assert_frame_equal(rows(one), rows(other), check_exact=True)
    assert same(whole_of(one.agent), whole_of(other.agent))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs that were never stopped and saved nothing before their end, by memory."""
    runs = {}

    def get(memory):
        if memory not in runs:
            folder = tmp_path_factory.mktemp("whole")
            runs[memory] = run_session(spec_of(memory, save_interval=1000), folder)
        return runs[memory]

    return get


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_run_stopped_after_several_checkpoints_and_resumed(memory, whole, tmp_path):
    stopped = run_session(spec_of(memory), tmp_path, on_row=stop_at(STOP))
    manifest = stopped.records.store.manifest()
    assert manifest.serial > 7
    assert len(manifest.segments) > 1
    assert stopped.agent.log.first > MAX_SIZE
    resumed = run_session(spec_of(memory), tmp_path, resume=True)
    assert_same_agent(resumed, whole(memory))


@pytest.mark.parametrize(
    ("call", "at"),
    [
        ("write", 1),
        ("write", 2),
        ("write", 3),
        ("fsync", 2),
        ("replace", 1),
        ("replace", 2),
    ],
)
def test_a_run_killed_while_a_checkpoint_is_written_and_resumed(
    call, at, whole, tmp_path
):
    """At the state, at the steps, and at the manifest that would name both."""

    def kill(session):
        if session.clock.frame >= STOP:
            with faults(Killed, [call], at=at):
                session._save(finished=False)

    session = make_session(spec_of("prioritized"), tmp_path, on_row=kill)
    with pytest.raises(Killed):
        session.run()
    session.close()
    assert 0 < session.records.store.manifest().frame < STOP
    resumed = run_session(spec_of("prioritized"), tmp_path, resume=True)
    assert_same_agent(resumed, whole("prioritized"))


@pytest.mark.parametrize("part", ["state", "steps"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_a_run_resumed_from_the_checkpoint_before_one_that_is_damaged(
    memory, part, whole, tmp_path
):
    stopped = run_session(spec_of(memory), tmp_path, on_row=stop_at(STOP))
    newest = stopped.records.store.manifest()
    name = newest.segments[-1].name if part == "steps" else newest.files["state"].name
    (stopped.paths.models / name).write_bytes(b"damaged")
    (line,) = settle([stopped.paths])
    assert name in line
    assert stopped.records.store.manifest().serial == newest.serial - 1
    resumed = run_session(spec_of(memory), tmp_path, resume=True)
    assert_same_agent(resumed, whole(memory))


def test_a_run_resumed_repeatedly(whole, tmp_path):
    spec = spec_of("prioritized")
    for frame in (120, 350, 710, 1100):
        run_session(spec, tmp_path, on_row=stop_at(frame), resume=True)
    assert_same_agent(run_session(spec, tmp_path, resume=True), whole("prioritized"))


def test_episodes_that_were_broken_off_stay_so_in_the_checkpoints_after_it(
    tmp_path, monkeypatch
):
    """Without exact state the newest step of a checkpoint is another in the next
    one."""
    monkeypatch.setattr(
        "slm_lab.env.vector.in_process.has_exact_state", lambda env: False
    )
    spec = spec_of("uniform", num_envs=2, env__name="Acrobot-v1")
    first = run_session(spec, tmp_path, on_row=stop_at(500))
    broken = first.agent.log.count - 1
    before = first.agent.log.content(broken, broken + 1)["arrays"]
    assert not before["done"].any()
    run_session(spec, tmp_path, on_row=stop_at(700), resume=True)
    third = make_session(spec, tmp_path, resume=True)
    assert third.agent.log.first < broken
    after = third.agent.log.content(broken, broken + 1)
    assert after["arrays"]["done"].all()
    np.testing.assert_array_equal(after["obs"]["last_obs"], first.env.obs)
    third.run()
    third.close()


def test_looking_at_the_latest_agent_reads_no_steps(tmp_path):
    session = run_session(spec_of("uniform"), tmp_path)
    for segment in session.records.store.manifest().segments:
        (session.paths.models / segment.name).unlink()
    state = session.records.store.load(session.records.store.manifest())
    assert same(state["agent"]["learner"], session.agent.learner.state_dict())


def test_a_mapped_memory_draws_what_one_in_memory_draws_and_leaves_no_file(
    whole, tmp_path
):
    session = run_session(spec_of("mapped"), tmp_path)
    assert_same_agent(session, whole("uniform"))
    manifests = (session.paths.manifest, previous_path(session.paths.manifest))
    kept = {name for manifest in manifests for name in read_manifest(manifest).names}
    found = {path.name for path in session.paths.models.iterdir()}
    assert found == {manifest.name for manifest in manifests} | kept
