"""Repeating and resuming in special cases; tests/contract covers every part."""

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

from slm_lab.testing.sessions import stop_at
from tests.support import make_session, parse, ppo, rows, run_session


def test_rows_after_the_checkpoint_are_written_again(tmp_path):
    """A kill between two checkpoints: rows after the first are cut off."""
    spec = parse(ppo(meta__save_interval=1000))
    whole = run_session(spec, tmp_path / "whole")

    class KilledError(Exception):
        pass

    def die(session):
        if session.clock.frame == 300:
            session._save(finished=False)
        if session.clock.frame >= 600:
            raise KilledError

    session = make_session(spec, tmp_path / "parts", on_row=die)
    with pytest.raises(KilledError):
        session.run()
    session.close()
    assert len(rows(session)) == 6
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert_frame_equal(rows(resumed), rows(whole), check_exact=True)


def test_where_episodes_cannot_be_continued_the_rollout_is_cut(tmp_path, monkeypatch):
    """Without exact state, new episodes must not look like the end of the old ones."""
    monkeypatch.setattr(
        "slm_lab.env.vector.in_process.has_exact_state", lambda env: False
    )
    spec = parse(ppo(env__name="Pendulum-v1", meta__save_interval=1000))
    stopped = run_session(spec, tmp_path, on_row=stop_at(100))
    last_obs = stopped.env.obs
    t = stopped.agent.memory.state_dict()["t"]
    assert 0 < t < 16
    resumed = make_session(spec, tmp_path, resume=True)
    rollout = resumed.agent.memory.state_dict()
    assert rollout["arrays"]["truncated"][t - 1].all()
    assert rollout["cut_places"] == [[t - 1, n] for n in range(4)]
    np.testing.assert_array_equal(np.stack(rollout["cut_obs"]), last_obs)
    assert not np.array_equal(resumed.env.obs, last_obs)
    resumed.run()
    resumed.close()
