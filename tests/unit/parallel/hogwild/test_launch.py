"""A Trial's parent and its Hogwild! workers: their initial weights, and when they
save."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from slm_lab.core.errors import LabError, UnusableCheckpointError
from slm_lab.core.files import write_json
from slm_lab.parallel import shared_memory
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.hogwild import launch
from slm_lab.parallel.hogwild.launch import (
    Checkpoints,
    global_state,
    lost_results,
    resumed_tasks,
)
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.storage.checkpoint import CheckpointStore
from slm_lab.storage.result import Ending, SessionResult
from slm_lab.storage.run_dir import RunDir
from tests.support import actor_critic, make_session, parse, ppo, soft
from tests.unit.parallel.tasks import worker_tasks

SPEC = parse(actor_critic(meta__distributed="shared", meta__max_session=2))


def test_a_checkpoint_is_requested_when_the_last_one_is_done_and_old_enough(
    monkeypatch,
):
    now = [100.0]
    monkeypatch.setattr(launch.time, "monotonic", lambda: now[0])
    status_board = StatusBoard.allocate(CONTEXT, 2)
    checkpoints = Checkpoints(status_board, 10.0)

    def requested_at(moment):
        now[0] = moment
        checkpoints.tick()
        return status_board.save_requested

    assert requested_at(150) == 0, "no worker runs"
    status_board.write(0, phase=Phase.RUNNING)
    assert requested_at(150) == 1
    assert requested_at(170) == 1, "no worker has made the first"
    status_board.checkpointed[0] = 1
    assert requested_at(159) == 1
    assert requested_at(160) == 2
    status_board.checkpointed[0] = 2
    status_board.paused_us[0] = 500_000
    status_board.paused_us[1] = 900_000  # of one that does not run any more
    assert requested_at(209) == 2, "half a second of standing still is paid off in 50"
    assert requested_at(210) == 3


def test_while_a_worker_writes_a_checkpoint_to_a_slow_disk_no_other_is_requested(
    monkeypatch,
):
    """The workers would write the next one at once, and train on for one step in
    between."""
    now = [0.0]
    monkeypatch.setattr(launch.time, "monotonic", lambda: now[0])
    status_board = StatusBoard.allocate(CONTEXT, 1)
    status_board.write(0, phase=Phase.RUNNING)
    checkpoints = Checkpoints(status_board, 10.0)
    now[0] = 10.0
    checkpoints.tick()
    assert status_board.save_requested == 1
    status_board.checkpointed[0] = status_board.saving[0] = 1
    for now[0] in (15.0, 25.0, 40.0):
        checkpoints.tick()
    assert status_board.save_requested == 1
    status_board.saving[0] = 0
    now[0] = 40.1  # it is about to note how long that took
    checkpoints.tick()
    status_board.paused_us[0] = 30_000_000
    now[0] = 40 + 30 / launch.PAUSE_SHARE - 1
    checkpoints.tick()
    assert status_board.save_requested == 1
    now[0] += 1
    checkpoints.tick()
    assert status_board.save_requested == 2


@pytest.mark.parametrize(("interval", "due"), [(0, 1.0), (30, 30.0)])
def test_workers_pause_at_most_once_a_second(monkeypatch, interval, due):
    now = [0.0]
    monkeypatch.setattr(launch.time, "monotonic", lambda: now[0])
    status_board = StatusBoard.allocate(CONTEXT, 1)
    status_board.write(0, phase=Phase.RUNNING)
    checkpoints = Checkpoints(status_board, interval)
    now[0] = due - 0.01
    checkpoints.tick()
    assert status_board.save_requested == 0
    now[0] = due
    checkpoints.tick()
    assert status_board.save_requested == 1


def saved_with(paths, state, frames, value, updates):
    """A checkpoint in which every weight is `value`."""
    for train_state in state.networks.values():
        train_state.vector.fill_(value)
        train_state.updates[:] = torch.tensor(updates)
    content = {"frames": frames, **state.state_dict()}
    CheckpointStore(paths.models, paths.prefix).save(
        sum(frames), {}, {"state": content}
    )


@pytest.fixture
def saved(tmp_path):
    run_dir = RunDir(tmp_path, SPEC.name)
    run_dir.session(0, 0).models.mkdir()
    one = worker_tasks(tmp_path, SPEC, 2)[0]
    state = global_state("shared", replace(one, resume=False))
    return run_dir, state, lambda: global_state("shared", one)


@pytest.mark.parametrize("later", [0, 1])
def test_of_two_checkpoints_with_the_same_frames_the_one_with_more_steps_is_restored(
    saved, later
):
    """A clock ticks before the training event: the same frames do not mean the same
    weights."""
    run_dir, state, restored = saved
    saved_with(run_dir.session(0, later), state, [80, 80], 7.0, [12, 8])
    saved_with(run_dir.session(0, 1 - later), state, [80, 80], 3.0, [12, 7])
    found = restored()
    assert all((each.vector == 7.0).all() for each in found.networks.values())
    assert set(found.updates.values()) == {20}, (
        "the next checkpoint has to be a newer one"
    )


def test_checkpoints_that_the_parent_saved_for_lost_workers_are_restored(saved):
    run_dir, state, restored = saved
    saved_with(run_dir.session(0, 0), state, [80, 80], 3.0, [12, 8])
    saved_with(run_dir.shared_by_training(0, 0), state, [96, 88], 7.0, [15, 8])
    assert all((each.vector == 7.0).all() for each in restored().networks.values())


def test_checkpoints_of_which_none_has_the_state_of_an_optimizer_are_refused(saved):
    """The worker that saves it for all was killed during the first checkpoint."""
    run_dir, state, restored = saved
    content = {"frames": [80, 80], **state.state_dict()}
    for network in content["agent"]["learner"]["train_state"].values():
        network["rule"] = None
    paths = run_dir.session(0, 1)
    CheckpointStore(paths.models, paths.prefix).save(160, {}, {"state": content})
    why = (
        f"no checkpoint in {paths.models} has the optimizer's state; restore it, or "
        "start"
    )
    with pytest.raises(UnusableCheckpointError, match=f"^{re.escape(why)} a new run$"):
        restored()
    saved_with(run_dir.session(0, 0), state, [80, 80], 7.0, [12, 8])
    assert all((each.vector == 7.0).all() for each in restored().networks.values())


BEFORE = (
    SessionResult(0, Ending.FAILED, 40, "it was killed", exit_code=-9, restarts=2),
    SessionResult(1, Ending.FINISHED, 60, exit_code=0),
    SessionResult(2, Ending.INTERRUPTED, 60, exit_code=0),
)


@pytest.mark.parametrize(
    ("frames", "failed"), [([40, 60, 60], [0]), ([40, 60, 20], [])]
)
def test_a_lost_worker_is_not_replaced_if_nothing_is_left_to_train(
    tmp_path, frames, failed
):
    """One that was only stopped has its last row to write."""
    spec = SPEC.model_copy(
        update={"env": SPEC.env.model_copy(update={"max_frame": 160})}
    )
    tasks = worker_tasks(tmp_path, spec, 3)
    status_board = StatusBoard.allocate(CONTEXT, 3)
    status_board.clock_slots[:] = frames
    assert lost_results(tasks, status_board) == [], "it has never ended before"
    metrics = RunDir(Path(tmp_path), spec.name).trial_metrics_file(0)
    write_json(metrics, {"sessions": [vars(result) for result in BEFORE]})
    assert [each.session for each in lost_results(tasks, status_board)] == failed
    assert lost_results(tasks[1:], status_board) == []


def test_a_worker_with_an_older_checkpoint_continues_at_the_frames_of_the_others(
    tmp_path, monkeypatch
):
    status_board = StatusBoard.allocate(CONTEXT, 3)
    status_board.clock_slots[:] = [400, 300, 0]
    saved = [{"frames": [350, 300, 20]}, {"frames": [400, 300, 50]}]
    monkeypatch.setattr(
        launch, "_saved", lambda *where: iter([(tmp_path, each) for each in saved])
    )
    tasks = resumed_tasks(worker_tasks(tmp_path, SPEC, 3), status_board)
    assert status_board.clock_slots.tolist() == [400, 300, 50]
    assert [task.resume for task in tasks] == [True, True, False]
    assert tasks[2].replaces is not None


def test_the_parent_of_workers_has_no_replay_memory(tmp_path):
    spec = parse(soft("SoftActorCritic", meta__distributed="shared"))
    # no machine has so much
    memory = spec.agent.memory.model_copy(update={"max_size": 10**13})
    spec = spec.model_copy(
        update={"agent": spec.agent.model_copy(update={"memory": memory})}
    )
    state = global_state("shared", worker_tasks(tmp_path, spec, 2)[0])
    assert set(state.networks) >= {"actor", "critic"}


def test_the_global_weights_are_those_that_a_session_alone_would_draw(tmp_path):
    """The decomposition behind orthogonal weights hangs on the number of threads."""
    spec = parse(ppo(agent__net__hid_layers=[64, 64], meta__distributed="shared"))
    session = make_session(spec, tmp_path / "alone", seed=3)
    session.close()
    torch.set_num_threads(2)
    state = global_state(
        "shared", replace(worker_tasks(tmp_path, spec, 1)[0], root_seed=3)
    )
    assert torch.get_num_threads() == 1
    for name, flat in session.agent.learner.flats.items():
        assert torch.equal(state.networks[name].vector, flat.vector)


def test_partial_files_of_torch_in_full_shared_memory_are_removed(
    tmp_path, monkeypatch
):
    cleared = []
    monkeypatch.setattr(shared_memory, "clear_left_over", lambda: cleared.append(True))

    def full(self, *arguments, **keywords):
        raise RuntimeError("No space left on device (28)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", full)
    with pytest.raises(LabError, match="make room there"):
        global_state("shared", worker_tasks(tmp_path, SPEC, 1)[0])
    assert cleared
