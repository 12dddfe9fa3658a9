"""A Session that is stopped before its first step."""

from pandas.testing import assert_frame_equal

from tests.support import make_session, parse, ppo, rows, run_session


def test_a_run_stopped_before_its_first_step_resumes_like_an_uninterrupted_one(
    tmp_path,
):
    spec = parse(ppo())
    whole = run_session(spec, tmp_path / "whole")
    session = make_session(spec, tmp_path / "stopped")
    session.status_board.request_stop()
    session.run()
    session.close()
    assert session.clock.frame == 0
    resumed = run_session(spec, tmp_path / "stopped", resume=True)
    assert_frame_equal(rows(resumed), rows(whole), check_exact=True)
