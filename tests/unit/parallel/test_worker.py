import logging
import sys
from dataclasses import replace
from datetime import datetime

import pytest
import torch

from slm_lab.core.errors import LabError, NonFiniteLossError, Problem, SpecError
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.worker import import_plugins, run_session
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import RunDir
from tests.support import parse, ppo

SESSION = 1


@pytest.fixture(autouse=True)
def _threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def status_board():
    return StatusBoard.allocate(CONTEXT, 2)


@pytest.fixture
def task(tmp_path):
    spec = parse(ppo(env__max_frame=256, meta__max_session=2))
    run_dir = RunDir.create(tmp_path, spec.name, datetime(2026, 1, 1))
    return SessionTask(
        spec=spec,
        run_dir=run_dir,
        root_seed=0,
        trial=0,
        session=SESSION,
        num_sessions=2,
        resume=False,
    )


def log_of(task):
    return task.run_dir.session(0, SESSION).log.read_text()


@pytest.mark.parametrize(
    ("gpu", "count", "taken"), [("auto", 2, [1]), ("auto", 1, []), (False, 2, [])]
)
def test_sessions_take_turns_at_the_gpus_where_there_are_several(
    task, status_board, monkeypatch, gpu, count, taken
):
    """Needs no GPU: it checks the calls of torch, and the nets are on the CPU."""
    asked = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "set_device", asked.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    spec = parse(ppo(env__max_frame=256, meta__max_session=2, agent__net__gpu=gpu))
    assert run_session(replace(task, spec=spec), status_board).ending is Ending.FINISHED
    assert asked == taken


@pytest.fixture
def failing(monkeypatch):
    """Sessions that fail after 64 frames, with the given error."""

    def fail_with(error, closed=None):
        class FailingSession:
            def __init__(
                self, spec, index, seeds, paths, status_board, *args, **options
            ):
                self.status_board = status_board
                self.index = index

            def run(self):
                self.status_board.clock_slots[self.index] = 64
                raise error

            def close(self):
                if closed is not None:
                    closed.append(self.index)

        monkeypatch.setattr("slm_lab.session.session.Session", FailingSession)

    return fail_with


def test_a_session_that_comes_to_its_end_is_a_finished_result(task, status_board):
    result = run_session(task, status_board)
    assert result.error is None
    assert (result.session, result.ending) == (SESSION, Ending.FINISHED)
    assert result.frame == 256
    assert status_board.read(SESSION).phase is Phase.DONE
    assert status_board.read(0).phase is Phase.WAITING
    log = task.run_dir.session(0, SESSION).log.read_text()
    assert "starting at frame 0" in log
    assert "finished at frame 256" in log


def test_numbers_too_small_for_a_normal_float_are_zero_in_a_session(task, status_board):
    tiny = torch.full((8,), 1e-30)
    assert (tiny * 1e-9).count_nonzero() == 8
    run_session(task, status_board)
    assert (tiny * 1e-9).count_nonzero() == 0


def test_a_session_asked_to_stop_is_an_interrupted_result(task, status_board):
    status_board.request_stop()
    result = run_session(task, status_board)
    assert (result.ending, result.frame, result.error) == (Ending.INTERRUPTED, 0, None)
    assert status_board.read(SESSION).phase is Phase.STOPPED


def test_an_exception_becomes_a_failed_result_with_its_traceback(
    task, status_board, failing
):
    failing(ZeroDivisionError("a bug"))
    result = run_session(task, status_board)
    assert (result.session, result.ending, result.frame) == (SESSION, Ending.FAILED, 64)
    assert result.error.startswith("Traceback")
    assert result.error.endswith("ZeroDivisionError: a bug")
    assert (
        status_board.read(SESSION).phase is Phase.WAITING
    )  # the parent may replace it


@pytest.mark.parametrize(
    "error",
    [
        LabError("what to do"),
        NonFiniteLossError("loss is nan\nat frame 64"),
        SpecError("file.json: ppo", [Problem("env.name", "unknown", "Cart")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_lab_error_becomes_a_failed_result_with_its_message_only(
    task, status_board, failing, error
):
    failing(error)
    result = run_session(task, status_board)
    assert result.ending is Ending.FAILED
    assert result.error == str(error)
    assert "Traceback" not in result.error


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), LabError("what to do")])
def test_the_log_of_the_session_has_the_traceback_of_any_failure(
    task, status_board, failing, error
):
    failing(error)
    run_session(task, status_board)
    log = log_of(task)
    assert f"Session {SESSION} failed" in log
    assert "Traceback (most recent call last)" in log
    assert f"{type(error).__name__}: {error}" in log


def test_an_error_without_a_message_is_still_an_error(task, status_board, failing):
    failing(LabError())
    assert run_session(task, status_board).error is not None


def test_a_session_that_fails_is_closed(task, status_board, failing):
    closed = []
    failing(RuntimeError("x"), closed)
    run_session(task, status_board)
    assert closed == [SESSION]


def test_the_log_is_closed_after_any_ending(task, status_board, failing):
    before = list(logging.getLogger("slm_lab").handlers)
    failing(RuntimeError("x"))
    run_session(task, status_board)
    assert logging.getLogger("slm_lab").handlers == before


def test_warnings_of_the_lab_go_to_the_log_of_the_session(
    task, status_board, monkeypatch, failing
):
    failing(LabError("x"))
    monkeypatch.setattr(
        torch,
        "set_num_threads",
        lambda n: logging.getLogger("slm_lab.agent").warning("told"),
    )
    run_session(task, status_board)
    assert "WARNING slm_lab.agent: told" in log_of(task)


def test_a_plug_in_that_does_not_import_is_a_failed_session_that_names_it(
    task, status_board, monkeypatch
):
    monkeypatch.setattr(sys, "path", list(sys.path))
    wrong = SessionTask(**{**vars(task), "imports": ("no_such_plug_in",)})
    result = run_session(wrong, status_board)
    assert result.ending is Ending.FAILED
    assert result.error == "--import no_such_plug_in: No module named 'no_such_plug_in'"


def test_a_plug_in_in_the_working_directory_is_imported(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_plug_in_of_a_test.py").write_text("LOADED = True\n")
    import_plugins(["my_plug_in_of_a_test"])
    assert sys.modules.pop("my_plug_in_of_a_test").LOADED


def test_without_plug_ins_the_path_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    import_plugins([])
    assert sys.path == before
