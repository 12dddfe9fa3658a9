"""Which Sessions of a Trial that is resumed have ended, and what their clocks show."""

import signal

import numpy as np
import pytest

from slm_lab.core.process import stop_on_signals
from slm_lab.session.status_board import Phase
from slm_lab.storage.manifest import Manifest
from slm_lab.storage.result import Ending, SessionResult
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies import trial as module
from slm_lab.studies.trial import Trial, TrialTask, have_ended
from tests.support import parse, ppo

BUDGET = 1000


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "model").mkdir()
    return RunDir(tmp_path, "small")


def spec_of(distributed, max_session=2, max_run=1, **flow):
    return parse(
        ppo(
            meta__distributed=distributed,
            meta__max_session=max_session,
            meta__max_run=max_run,
            meta__actor_learner=flow,
            env__max_frame=BUDGET,
        )
    )


def saved(run_dir, session, frame, finished=True):
    """A Session's checkpoint: only its manifest."""
    manifest = Manifest(frame, 1, {}, finished, {}, ())
    run_dir.session(0, session).manifest.write_text(manifest.to_json())


def ended(spec, run_dir):
    return have_ended(spec, run_dir, 0)[0]


FLOW = {"distributed": "actor_learner"}
SERIAL = {**FLOW, "max_session": 3, "max_run": 2, "serial": True}
ENDED = [
    # a training, (frame, finished) of each Session with a checkpoint, which have ended
    (FLOW, {}, [False] * 3),
    (FLOW, {0: (BUDGET, True)}, [True] * 3),
    (FLOW, {0: (BUDGET + 24, True)}, [True] * 3),
    (FLOW, {0: (BUDGET, False)}, [False] * 3),
    (FLOW, {0: (700, True)}, [False] * 3),
    (
        {**FLOW, "max_run": 2},
        {0: (BUDGET, True), 3: (500, False)},
        [True] * 3 + [False] * 3,
    ),
    (SERIAL, {0: (BUDGET, True)}, [True, False]),
    ({"distributed": False}, {0: (BUDGET, True), 1: (BUDGET - 1, True)}, [True, False]),
    *(
        ({"distributed": mode}, saves, ends)
        for mode in ("shared", "synced", "all_reduce")
        for saves, ends in (
            ({0: (400, True)}, [False, False]),
            ({0: (400, True), 1: (600, True)}, [True, True]),
            ({0: (400, True), 1: (600, False)}, [True, False]),
        )
    ),
]


@pytest.mark.parametrize(("training", "saves", "ends"), ENDED)
def test_sessions_have_ended_that_saved_at_the_end_of_the_budget_of_their_training(
    run_dir, training, saves, ends
):
    for session, (frame, finished) in saves.items():
        saved(run_dir, session, frame, finished)
    assert ended(spec_of(**training), run_dir) == ends


def scored(run_dir, session, *returns):
    """A Session's rows, with the columns that decide; a moving average would be far
    above."""
    path = run_dir.session(0, session).rows
    path.parent.mkdir(exist_ok=True)
    header, lines = (
        "frame,total_reward_ma,recent_return",
        [f"1,900,{each}" for each in returns],
    )
    path.write_text("\n".join([header, *lines, ""]))


def solved_at(spec, target):
    return spec.model_copy(
        update={"meta": spec.meta.model_copy(update={"stop_return": target})}
    )


@pytest.mark.parametrize("distributed", ["shared", "all_reduce", "actor_learner"])
def test_a_training_that_reached_its_return_is_finished_before_its_budget(
    run_dir, distributed
):
    spec = spec_of(distributed)
    count = spec.meta.num_sessions
    for session in range(2):
        saved(run_dir, session, 100)
    for session in spec.meta.writers:
        scored(run_dir, session, "", 20.0, 200.5, 150.0)
    assert ended(spec, run_dir) == [False] * count
    assert ended(solved_at(spec, 200.5), run_dir) == [True] * count
    assert ended(solved_at(spec, 201.0), run_dir) == [False] * count
    saved(run_dir, 0, 100, finished=False)
    assert ended(solved_at(spec, 200.5), run_dir) == [False] * count


def test_a_worker_that_reached_the_return_ends_all_unless_one_was_stopped(run_dir):
    spec = solved_at(spec_of("synced"), 200.0)
    for session, best in enumerate([200.0, 50.0]):
        saved(run_dir, session, 100)
        scored(run_dir, session, best)
    assert ended(spec, run_dir) == [True, True]
    alone = solved_at(spec_of(False), 200.0)
    assert ended(alone, run_dir) == [True, False], "each on its own"
    saved(run_dir, 1, 100, finished=False)
    assert ended(spec, run_dir) == [False, False]


def test_unreadable_rows_are_reported_by_the_session(run_dir):
    spec = solved_at(spec_of(False), 200.0)
    saved(run_dir, 0, 100)
    assert ended(spec, run_dir) == [False, False]
    scored(run_dir, 0, "damaged")
    assert ended(spec, run_dir) == [False, False]


def test_a_finished_training_starts_no_process_and_its_actors_share_its_frames(
    run_dir, monkeypatch
):
    saved(run_dir, 0, BUDGET)
    trial = Trial(TrialTask(spec_of("actor_learner", 3), run_dir, 0, resume=True))
    monkeypatch.setattr(
        module, "load_target", lambda name: pytest.fail("something was started")
    )
    results = trial.train(trial._tick)
    assert [(each.session, each.ending) for each in results] == [
        (session, Ending.FINISHED) for session in range(4)
    ]
    assert [each.frame for each in results] == [1000, 333, 333, 334]
    assert {trial.status_board.phase(session) for session in range(4)} == {Phase.DONE}


def test_of_two_runs_only_the_unfinished_one_continues_with_all_its_processes(
    run_dir, monkeypatch
):
    saved(run_dir, 0, BUDGET)
    saved(run_dir, 3, 500, finished=False)
    trial = Trial(
        TrialTask(spec_of("actor_learner", max_run=2), run_dir, 0, resume=True)
    )
    started = []

    def launch(tasks, status_board, on_tick):
        started.extend(task.session for task in tasks)
        assert {task.workers for task in tasks} == {range(3, 6)}
        assert status_board.clock_slots.tolist() == [1000, 500, 500, 500, 250, 250]
        return []

    monkeypatch.setattr(module, "load_target", lambda name: launch)
    trial.train(trial._tick)
    assert started == [3, 4, 5]


def stages_of(run_dir, monkeypatch, ending, frame, stop=False):
    """The texts that a Trial shows beside its Sessions, whose training ends like
    this."""
    shown = []
    task = TrialTask(spec_of(False, 1), run_dir, 0, one_of_many=True)
    trial = Trial(task, on_tick=lambda status_board: shown.append(status_board.stage))

    def train(on_tick):
        on_tick()
        if stop:
            trial.status_board.request_stop()
        return [SessionResult(0, ending, frame)]

    monkeypatch.setattr(trial, "train", train)
    monkeypatch.setattr(module, "read_existing", lambda files: {0: ONE_ROW})
    trial.run()
    return list(dict.fromkeys(shown))


ONE_ROW = {"epi": np.ones(1), "wall_t": np.ones(1)}


@pytest.mark.parametrize(
    ("ending", "frame", "stop", "stages"),
    [
        (
            Ending.FINISHED,
            BUDGET,
            False,
            ["", "comparing with the Random agent", "drawing the graphs"],
        ),
        (Ending.FAILED, 0, False, [""]),
        (Ending.INTERRUPTED, 500, True, [""]),
    ],
    ids=["finished", "never began", "stopped"],
)
def test_a_trial_says_what_follows_its_training(
    run_dir, monkeypatch, ending, frame, stop, stages
):
    assert stages_of(run_dir, monkeypatch, ending, frame, stop) == stages


def test_signals_that_come_together_count_as_one(monkeypatch):
    """The command `timeout` sends one to its child, and one to the whole group."""
    requests = []
    with stop_on_signals(lambda: requests.append(1)):
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        assert requests == [1]
        monkeypatch.setattr("slm_lab.core.process.ONE_SIGNAL", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
