"""Which Sessions of a run can be evaluated: those with a saved agent."""

import re

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.records.playable_run import PlayableRun
from slm_lab.records.run_source import RunSource
from slm_lab.studies.run import PreparedRun
from tests.faults.lab import NAME, write_spec
from tests.support import ppo


@pytest.fixture
def saved(tmp_path):
    """What `-s` and the like find of a run of two trainings by two ranks each."""
    meta = {
        "meta__distributed": "all_reduce",
        "meta__max_session": 2,
        "meta__max_run": 2,
    }
    spec_file = str(write_spec(tmp_path, ppo(**meta)))
    data = tmp_path / "data"
    data.mkdir()
    run = PreparedRun(RunSource(spec_file, NAME, data_dir=data))
    run.release()
    return PlayableRun(RunSource(spec_file, NAME, "latest", data_dir=data))


@pytest.mark.parametrize(("rank", "first"), [(1, 0), (3, 2)])
def test_a_request_for_a_rank_gets_the_session_of_its_agent(saved, rank, first):
    message = (
        f"Session {rank}: it is a rank, and the agent of all ranks is saved by Session "
        f"{first}; choose Session {first}"
    )
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        saved.sessions(rank)
    assert saved.sessions(first) == [first]
    assert saved.sessions(None) == [0, 2]
