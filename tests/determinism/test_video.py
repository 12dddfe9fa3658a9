"""Videos of a training change nothing of it, and show the agent as it was."""

import ctypes.util
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from pandas.testing import assert_frame_equal

from slm_lab.records.run_source import RunSource
from slm_lab.session.evaluator import Evaluator
from slm_lab.session.seeding import session_seeds
from slm_lab.session.video import VideoRecorder
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.run import PreparedRun
from slm_lab.testing.sessions import (
    assert_same_run,
    global_generators,
    poison_global_generators,
    stop_at,
)
from tests.faults.lab import call, write_spec
from tests.support import make_session, parse, ppo, q_learning, rows, run_session
from tests.video import read_video

CARTPOLE = {"env__max_t": 20, "env__max_frame": 600}
FRAMES = [252, 500, 600]
"""where the videos of every 250 frames are, of four environments, and the one at the
end"""

SPECS = {
    "cartpole": ppo(**CARTPOLE),
    "normalized": ppo(
        env__name="Pendulum-v1",
        **CARTPOLE,
        env__normalize_obs=True,
        env__normalize_reward=True,
    ),
    "replay": q_learning("DQN", **CARTPOLE),
    "random": {
        "agent": {"name": "Random", "algorithm": {"name": "Random"}},
        "env": {**ppo()["env"], "max_t": 20, "max_frame": 600},
        "meta": ppo()["meta"],
    },
}


def spec_of(name, **meta):
    data = SPECS[name]
    return parse({**data, "meta": {**data["meta"], **meta}})


def recorded(name, **meta):
    return spec_of(name, **{"record_video": 250, **meta})


def videos(session):
    """The files of a Session by frame; nothing else is in their folder."""
    folder = session.paths.root / "video"
    files = sorted(folder.iterdir()) if folder.exists() else []
    found = {}
    for path in files:
        frame = re.fullmatch(
            rf"{session.paths.prefix}_session_video_(\d+)\.mp4", path.name
        )
        assert frame is not None, path
        found[int(frame.group(1))] = path
    return dict(sorted(found.items()))


@pytest.mark.medium
@pytest.mark.parametrize("name", SPECS)
def test_videos_do_not_change_a_training(name, tmp_path):
    plain = run_session(spec_of(name), tmp_path / "plain")
    poison_global_generators(0)
    before = global_generators()
    filmed = run_session(recorded(name), tmp_path / "filmed")
    assert global_generators() == before
    assert not videos(plain)
    assert list(videos(filmed)) == FRAMES
    assert_same_run(filmed, plain)
    np.testing.assert_array_equal(filmed.env.statistics, plain.env.statistics)


@pytest.mark.medium
def test_a_video_shows_the_greedy_episode_of_the_agent_as_it_was(tmp_path, caplog):
    caplog.set_level("INFO")
    kept = {}

    def keep(session):
        kept[session.clock.frame] = session.parts.snapshot()

    spec = recorded("cartpole", record_video=300)
    session = run_session(spec, tmp_path, on_row=keep)
    seed = np.random.SeedSequence([session_seeds(0, 0, 0).video, 300]).generate_state(
        1
    )[0]
    evaluator = Evaluator(spec, 1, int(seed))
    evaluator.load_snapshot(kept[300])
    (episode_return,), (length,) = evaluator.play(1)[1:3]
    evaluator.close()
    meta, frames = read_video(videos(session)[300])
    assert len(frames) == length + 1
    assert (meta["fps"], frames.shape[1:]) == (50.0, (400, 600, 3))
    assert f"an episode with the return {episode_return:.6g}" in caplog.text
    assert frames.std(axis=0).max() > 20  # the cart moves


@pytest.mark.medium
@pytest.mark.parametrize("at", [252, 300])
def test_a_resumed_run_has_the_videos_of_the_uninterrupted_one(at, tmp_path):
    spec = recorded(
        "cartpole", log_frequency=4 if at == 252 else 100, save_interval=1000
    )
    whole = run_session(spec, tmp_path / "whole")
    stopped = run_session(spec, tmp_path / "parts", on_row=stop_at(at))
    assert list(videos(stopped)) == FRAMES[:1]
    written = videos(stopped)[252].stat().st_mtime_ns
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert videos(resumed)[252].stat().st_mtime_ns == written
    assert list(videos(resumed)) == FRAMES
    for frame, path in videos(whole).items():
        assert path.read_bytes() == videos(resumed)[frame].read_bytes()
    assert_frame_equal(rows(resumed), rows(whole), check_exact=True)


@pytest.fixture
def make_recorder(tmp_path, monkeypatch):
    """Makes a recorder of every 250 frames in the same folder, whose videos are empty
    files."""

    def write(self, snapshot, frame, stop):
        path = self._paths.video(frame)
        path.parent.mkdir(exist_ok=True)
        path.touch()

    monkeypatch.setattr(VideoRecorder, "_record", write)
    spec = recorded("cartpole")
    return lambda: VideoRecorder(spec, 0, RunDir(tmp_path, spec.name).session(0, 0))


def filmed(recorder, frames):
    """Those of `frames` at which a video was due, and was recorded."""
    due = []
    for frame in frames:
        if recorder.due(frame):
            recorder.record({"frame": frame}, lambda: False)
            due.append(frame)
    return due


def test_a_step_over_several_multiples_is_filmed_once(make_recorder):
    frames = [100, 249, 251, 499, 1100, 1101, 1249, 1250]
    assert filmed(make_recorder(), frames) == [251, 1100, 1250]


def test_after_a_resume_the_videos_in_the_folder_count(make_recorder):
    assert filmed(make_recorder(), [300, 1100]) == [300, 1100]
    assert filmed(make_recorder(), [1100, 1240, 1300, 1400]) == [1300]


def test_a_learner_with_actors_is_filmed_at_every_multiple_that_it_passes(tmp_path):
    """Its frames advance by whole unrolls."""
    flow = {"serial": True, "unroll_length": 16}
    together = {"distributed": "actor_learner", "max_session": 1, "actor_learner": flow}
    session = run_session(recorded("cartpole", **together), tmp_path, serially=True)
    first, second, last = videos(session)
    assert 250 <= first < 500 <= second < 600 <= last == session.clock.frame


@pytest.mark.medium
def test_a_video_that_a_stop_interrupts_is_repeated_after_the_resume(
    tmp_path, monkeypatch
):
    spec = recorded("cartpole")
    whole = run_session(spec, tmp_path / "whole")
    record = VideoRecorder.record

    def record_with_a_stop(self, snapshot, stop):
        asked = iter([False, False])
        record(self, snapshot, lambda: next(asked, True))
        monkeypatch.setattr(VideoRecorder, "record", record)
        session.status_board.request_stop()

    monkeypatch.setattr(VideoRecorder, "record", record_with_a_stop)
    session = make_session(spec, tmp_path / "parts")
    session.run()
    session.close()
    assert session.clock.frame == 252
    assert videos(session) == {}
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert list(videos(resumed)) == FRAMES
    assert videos(resumed)[252].read_bytes() == videos(whole)[252].read_bytes()
    assert_frame_equal(rows(resumed), rows(whole), check_exact=True)


def test_an_episode_without_an_end_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr("slm_lab.session.video.MAX_STEPS", 10)
    spec = parse(
        ppo(env__name="Pendulum-v1", env__max_frame=300, meta__record_video=300)
    )
    session = run_session(spec, tmp_path)
    assert len(read_video(videos(session)[300])[1]) == 11


class Blind(CartPoleEnv):
    """Takes no render mode."""

    def __init__(self):
        super().__init__()


class Broken(CartPoleEnv):
    """Draws nothing."""

    def render(self):
        raise RuntimeError("there is no\n context")


@pytest.fixture
def odd(registered):
    """A spec of CartPole as another class."""

    def make(env):
        name = registered("Odd-v0", env)
        return ppo(**CARTPOLE, env__name=name, meta__record_video=250)

    return make


def test_an_environment_that_cannot_be_drawn_is_reported_once(
    odd, tmp_path, capfd, caplog
):
    plain = run_session(spec_of("cartpole"), tmp_path / "plain")
    session = run_session(parse(odd(Broken)), tmp_path / "odd")
    assert session.clock.frame == plain.clock.frame
    warning = (
        "meta.record_video: no video at frame 252, and none from now on: "
        "Odd-v0 cannot be drawn: there is no context"
    )
    assert capfd.readouterr().err == f"{warning}\n"
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert [line for line in warnings if "suspicious setting:" not in line] == [warning]
    assert videos(session) == {}


def test_an_environment_without_images_is_reported_before_the_training(
    odd, tmp_path, capfd
):
    data = odd(Blind)
    write_spec(tmp_path, data)
    run = PreparedRun(RunSource(str(tmp_path / "spec.json"), data_dir=tmp_path))
    reason = (
        "meta.record_video: no videos, Odd-v0 cannot be drawn: it takes no render_mode"
    )
    assert run.notes == (reason,)
    session = run_session(run.spec, tmp_path / "odd")
    assert videos(session) == {}
    assert capfd.readouterr().err == ""


def test_where_no_file_can_be_written_the_training_continues(tmp_path, capfd):
    spec = recorded("cartpole")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "video").write_text("in the way")
    session = run_session(spec, tmp_path / "run")
    assert session.clock.frame == 600
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(
        "meta.record_video: no video at frame 252, and none from now on: "
    )


SCRIPT = """
import sys
from pathlib import Path
from tests.support import parse, ppo, run_session
spec = ppo(env__name="HalfCheetah-v5", env__max_t=4, env__max_frame=100,
           env__kwargs={"width": 64, "height": 48}, meta__record_video=100)
run_session(parse(spec), Path(sys.argv[1]))
"""


@pytest.mark.medium
@pytest.mark.skipif(
    importlib.util.find_spec("mujoco") is None
    or ctypes.util.find_library("EGL") is None,
    reason="needs the mujoco extra and a library of EGL",
)
def test_mujoco_is_drawn_without_a_display_or_settings(tmp_path, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "PYOPENGL_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    root = Path(__file__).parents[2]
    done = call([sys.executable, "-c", SCRIPT, str(tmp_path)], root)
    assert (done.code, done.err) == (0, "")
    (path,) = (tmp_path / "video").iterdir()
    meta, frames = read_video(path)
    assert (meta["fps"], frames.shape) == (20.0, (5, 48, 64, 3))
    assert frames.std() > 10
