"""What a training says while it waits for room on a cluster."""

from dataclasses import replace

import pytest

pytest.importorskip("ray")

from slm_lab.core.errors import LabError
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.ray import launch
from slm_lab.parallel.task import SessionTask
from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.run_dir import RunDir
from tests.support import parse, ppo

SMALL = "2 ranks need 2 CPU of the Ray cluster, which has 1"
SPEC = parse(ppo(meta__distributed="all_reduce", meta__max_session=2))


class Group:
    """Reserved resources."""

    def ready(self):
        return self


@pytest.fixture
def waiting(monkeypatch, tmp_path):
    """Gives what waits for room that comes after some looks at what the cluster lacks;
    it returns the stages that were shown. `lost` is why the ranks restart."""
    status_board = StatusBoard.allocate(CONTEXT, 2)
    rank = SessionTask(
        spec=SPEC,
        run_dir=RunDir(tmp_path, SPEC.name),
        root_seed=0,
        trial=0,
        session=0,
        num_sessions=2,
        resume=False,
    )

    def wait(*lacks, lost):
        left = list(lacks)
        stages = []
        monkeypatch.setattr(launch, "placement_group", lambda *_, **__: Group())
        monkeypatch.setattr(launch, "remove_placement_group", lambda group: None)
        monkeypatch.setattr(launch, "missing_resources", lambda *_: left.pop(0))
        monkeypatch.setattr(
            launch.ray, "wait", lambda refs, **_: ([], refs) if left else (refs, [])
        )
        ranks = [replace(rank, restarted_because=lost)] * 2
        try:
            with launch.reserved(
                ranks, status_board, lambda: stages.append(status_board.stage)
            ):
                stages.append(status_board.stage)
        finally:
            assert status_board.stage == ""
        return list(dict.fromkeys(stages[:-1])), stages[-1]

    return wait


def test_after_the_loss_of_a_node_it_says_that_it_waits_for_another(waiting):
    node = f"waiting up to 60 s for another node: {SMALL}"
    room = "waiting for room on the cluster for 2 ranks"
    stages = waiting(SMALL, SMALL, None, None, None, lost="its node was lost")
    assert stages == (["", node, room], "")


def test_where_there_is_room_nothing_is_said(waiting):
    assert waiting(lost=None) == ([""], "")


def test_a_cluster_that_was_always_too_small_is_refused(waiting):
    with pytest.raises(LabError, match=SMALL):
        waiting(SMALL, SMALL, SMALL, lost=None)
