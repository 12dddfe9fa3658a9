"""`slm-lab run`: bad input, and the files of a run."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from slm_lab.cli import run as run_command
from slm_lab.cli.main import retro
from slm_lab.cli.shell.parent_program import ParentProgram
from slm_lab.metrics.trial_metrics import throughput, trial_metrics
from slm_lab.records.run_source import RunSource
from slm_lab.storage.result import Ending, SessionResult, TrialResult
from slm_lab.storage.run_dir import RunDir
from tests.faults.lab import NAME, call, call_here, command, lab, write_spec
from tests.support import parse, ppo
from tests.unit.cli.trained import assert_bad_input, heavy_imports

ROOT = Path(__file__).parents[3]

WAYS = {"f": Ending.FAILED, "d": Ending.FINISHED, "i": Ending.INTERRUPTED}
WRONG = {
    "an unknown mode": (
        ["spec.json", NAME, "trian"],
        ['"trian"', "did you mean train?"],
    ),
    "nothing to search": (
        ["spec.json", NAME, "search"],
        ["search: is missing", "uniform"],
    ),
    "no search to go on with": (
        ["spec.json", NAME, "search@latest"],
        ["no search of small"],
    ),
    "a missing file": (["nowhere.json", NAME], ["nowhere.json", "no such file"]),
    "a missing spec": (["spec.json", "smal"], ["smal", "small"]),
    "an unknown key": (
        ["spec.json", "-s", "agent.nte.type=x"],
        ["agent.nte", "unknown key"],
    ),
    "a wrong type": (
        ["spec.json", "-s", "env.num_envs=many"],
        ["env.num_envs", "many"],
    ),
    "a set without =": (["spec.json", "-s", "agent"], ["-s agent", "key=value"]),
    "an unknown environment": (
        ["spec.json", "-s", "env.name=CartPoel-v1"],
        ["CartPole-v1"],
    ),
    "a plug-in that is not there": (
        ["spec.json", "--import", "nowhere"],
        ["--import nowhere"],
    ),
    "nothing to resume": (["spec.json", NAME, "train@latest"], ["no run of small"]),
    "no such run folder": (
        ["spec.json", NAME, "train@data/gone"],
        ["no run folder data/gone"],
    ),
    "schedules of a new run": (
        ["spec.json", "--schedules", "hold"],
        ["--schedules works only with train@RUN"],
    ),
    "checkpoints of trials without a search": (
        ["spec.json", "--keep", "2"],
        ["--keep works only with search, not with train"],
    ),
    "a name for a run that has one": (
        ["spec.json", NAME, "train@latest", "--name", "mine"],
        ["--name works only where a run begins, not with train@latest"],
    ),
    "a resume without a name": (
        ["spec.json", "--resume"],
        ["--resume needs the --name of the run"],
    ),
    "a part of no run": (
        ["spec.json", "--init-part", "net"],
        ["add --init-from RUN"],
    ),
    "an unknown option": (["spec.json", "--sede", "1"], ["--sede"]),
    "a negative seed": (["spec.json", "--seed", "-1"], ["--seed"]),
}

MISSING_EXTRA = """
import sys
from slm_lab.cli.main import main
sys.modules["ale_py"] = None
main()
"""


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_one_clear_message_and_leaves_nothing_behind(what, tmp_path):
    args, words = WRONG[what]
    write_spec(tmp_path, ppo())
    code = 3 if "@" in args[-1] else 2
    assert_bad_input(tmp_path, ["run", *args], words, code)


@pytest.mark.medium
def test_a_missing_extra_is_reported_with_its_install_command(tmp_path):
    write_spec(tmp_path, ppo(env__name="ALE/Pong-v5"))
    done = call(
        [sys.executable, "-c", MISSING_EXTRA, *command(tmp_path, "train")[1:]], tmp_path
    )
    assert done.code == 2
    assert 'pip install "slm-lab[atari]"' in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "data").exists()


CONV = {"type": "ConvNet", "conv_hid_layers": [[8, 4]]}
IMAGES = "agent.net.type = 'ConvNet': takes observations that are images"


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("train", "'slm-lab run SPEC train'?"),
        ("evaluate", "'slm-lab run eval@latest'?"),
        ("enjoy@x", "'slm-lab run enjoy@x'?"),
        ("compar", "'slm-lab compare'?"),
        ("benchmarks", "'slm-lab benchmark'?"),
        ("figures", "No such command 'figures'."),
    ],
)
def test_a_mode_in_place_of_a_command_is_answered_with_the_command(
    tmp_path, word, words
):
    assert_bad_input(tmp_path, [word], [f"No such command '{word}'.", words])


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["run-remote"],
            "No such command 'run-remote': use slm-lab run … --cluster ADDRESS",
        ),
        (["run", "--seed"], "Option '--seed' requires an argument."),
        (
            ["run", "x", "--profile"],
            "No such option '--profile': use slm-lab probe SPEC NAME",
        ),
        (
            ["run", "--total-timesteps", "9"],
            "No such option '--total-timesteps': use env.max_frame",
        ),
    ],
)
def test_words_of_other_libraries_get_those_of_the_lab(tmp_path, words, answer):
    assert_bad_input(tmp_path, words, [answer])


def test_slm_retro_names_the_command_in_its_place():
    with pytest.raises(SystemExit, match="slm-retro: use slm-lab run train@FOLDER"):
        retro()


WRONG_SPECS = {
    "two problems": (
        ppo(env__num_envs=0, agent__algorithm__gama=0.9),
        ["2 problems", "env.num_envs", "agent.algorithm.gama"],
    ),
    "a net for images": (
        ppo(agent__net=CONV),
        [IMAGES, "the shape (4,); vectors need MLPNet"],
    ),
    "what only the environment knows": (
        ppo(env__image_downsize=[8, 8]),
        [
            "spec.json: small has 1 problem\n",
            "\n  env.image_downsize = [8, 8]: only images can be resized",
        ],
    ),
}


@pytest.mark.parametrize("what", WRONG_SPECS)
def test_a_wrong_spec_is_refused_before_anything_starts(what, tmp_path):
    raw, words = WRONG_SPECS[what]
    write_spec(tmp_path, raw)
    assert_bad_input(tmp_path, ["run", "spec.json", NAME, "train"], words)


def test_a_file_that_is_no_json_is_bad_input(tmp_path):
    (tmp_path / "spec.json").write_text('{"small": {')
    assert_bad_input(tmp_path, ["run", "spec.json", NAME, "train"], ["spec.json"])


def test_data_that_cannot_be_written_is_one_clear_message(tmp_path):
    write_spec(tmp_path, ppo())
    (tmp_path / "data").write_text("a file, where a folder should be")
    done = call_here(command(tmp_path, "train"), tmp_path)
    assert done.code in (1, 2)
    assert str(tmp_path / "data") in done.err
    assert "Traceback" not in done.err


@pytest.mark.medium
@pytest.mark.parametrize(
    "args", [["--help"], ["run", "--help"], ["compare", "--help"], ["--version"]]
)
def test_help_needs_no_heavy_import(args):
    assert heavy_imports(args) == []


def test_run_lab_is_the_command_run_under_its_classic_name(tmp_path):
    write_spec(tmp_path, ppo())
    args = ["spec.json", NAME, "trian"]
    classic = call([sys.executable, str(ROOT / "run_lab.py"), *args], tmp_path)
    assert classic == lab(tmp_path, "run", *args)


@pytest.mark.medium
def test_the_package_as_a_module_is_the_command(tmp_path):
    write_spec(tmp_path, ppo())
    args = ["run", "spec.json", NAME, "train", "-s", "agent.algorithm.gamma=2"]
    module = call([sys.executable, "-m", "slm_lab", *args], tmp_path)
    assert module.code == 2
    assert module == lab(tmp_path, *args)


class Ended:
    """In place of a PreparedRun: one whose Sessions have ended in these ways."""

    resume, root_seed, notes, imports, verb = False, 0, (), (), "dev"
    begins_by = "training"

    def __init__(self, folder, endings, frame=64, diverged=(), **meta):
        self.spec = parse(ppo(**meta), NAME)
        self.run_dir = RunDir(folder, NAME)
        results = [
            SessionResult(session, WAYS[way], frame, "it broke" if way == "f" else None)
            for session, way in enumerate(endings)
        ]
        self.sessions = tuple(
            replace(each, diverged=each.session in diverged) for each in results
        )

    def start(self, on_tick):
        return TrialResult(
            self.sessions, trial_metrics([], None), throughput([], []), ()
        )


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """Both streams of a run whose Sessions have ended in these ways."""

    def run(endings, **how):
        ended = Ended(tmp_path, endings, **how)
        monkeypatch.setattr(run_command, "PreparedRun", lambda source, verb: ended)
        assert (
            run_command.run_spec(RunSource("spec.json", NAME), ParentProgram(), "train")
            == 1
        )
        return capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("meta", "endings", "messages", "continues"),
    [
        (
            {"meta__distributed": "synced", "meta__max_session": 3},
            "fff",
            ("Session 1 failed", "3 of 3 Sessions failed\n"),
            True,
        ),
        (
            {"meta__distributed": "synced", "meta__max_session": 3},
            "dfd",
            (
                "Session 1 failed",
                "1 of 3 Sessions failed; the metrics rest on the other 2\n",
            ),
            True,
        ),
        (
            {"meta__distributed": "actor_learner", "meta__max_session": 2},
            "dfd",
            (
                "Session 1 (actor 0) failed",
                "1 of 3 Sessions failed; the metrics rest on 1 learner\n",
            ),
            False,
        ),
        (
            {"meta__distributed": "actor_learner", "meta__max_session": 2},
            "fff",
            (
                "Session 0 (learner) failed",
                "Session 2 (actor 1) failed",
                "3 of 3 Sessions failed\n",
            ),
            True,
        ),
    ],
)
def test_failed_sessions_are_reported_and_a_resume_is_advised(
    printed, meta, endings, messages, continues
):
    shown = printed(endings, **meta)
    for words in messages:
        assert words in shown.err
    assert ("resume with: slm-lab run" in shown.out) == continues


@pytest.mark.parametrize(
    ("endings", "diverged", "continues"),
    [
        ("ff", (0, 1), False),
        ("fd", (0,), False),
        ("ff", (0,), True),
        ("fi", (0,), True),
    ],
)
def test_a_resume_is_advised_only_for_sessions_that_it_would_train(
    printed, endings, diverged, continues
):
    out = printed(endings, diverged=diverged, meta__max_session=2).out
    assert ("resume with: slm-lab run" in out) == continues
    last = out.splitlines()[-1]
    assert last.startswith(", ".join(f"Session {each}" for each in diverged))
    assert "resuming would repeat it" in last


@pytest.mark.parametrize(("endings", "continues"), [("ff", False), ("fi", True)])
def test_no_resume_is_advised_for_a_training_that_never_began(
    printed, endings, continues
):
    out = printed(endings, frame=0, meta__max_session=2).out
    assert ("resume with" in out) == continues


NEVER_BEGINS = """
import gymnasium
import numpy as np

class Early(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        raise RuntimeError("it breaks before the first step")

gymnasium.register("Early-v0", entry_point=Early)
"""


@pytest.mark.medium
def test_a_training_that_never_begins_leaves_no_metrics_graphs_or_advice(tmp_path):
    write_spec(tmp_path, ppo(env__name="Early-v0", meta__max_session=2))
    (tmp_path / "early.py").write_text(NEVER_BEGINS)
    done = call([*command(tmp_path, "train"), "--import", "early"], tmp_path)
    assert done.code == 1
    assert "it breaks before the first step" in done.err
    assert "2 of 2 Sessions failed" in done.err
    assert "Random" not in done.err
    assert "resume with" not in done.out
    assert list(tmp_path.rglob("*.png")) == []
    assert list(tmp_path.rglob("random_returns.json")) == []


def test_a_spec_whose_name_has_a_colon_imports_no_module_of_the_folder(tmp_path):
    (tmp_path / "mine.py").write_text("open('executed', 'w').close()")
    (tmp_path / "s.json").write_text('{"mine:x": {"agent": {}, "env": {}}}')
    assert_bad_input(tmp_path, ["run", "s.json", "mine:x"], ["s.json: mine:x has"])


@pytest.mark.medium
def test_the_first_table_has_five_metrics_and_all_has_the_rest(tmp_path):
    write_spec(tmp_path, ppo(env__max_frame=400, meta__max_session=2))
    first = call_here(command(tmp_path, "train"), tmp_path)
    every = call_here([*command(tmp_path, "train@latest"), "--all"], tmp_path)
    few, all_rows = (
        [line for line in each.out.splitlines() if line.startswith("│")]
        for each in (first, every)
    )
    assert len(few) == 5
    assert set(few) < set(all_rows)
    more = next(
        line for line in first.out.splitlines() if "more metrics with --all" in line
    )
    assert int(more.split()[0]) == len(all_rows) - len(few)
    assert Path(tmp_path, more.rpartition("and in ")[2]).is_file()
    assert "moving average" in every.out
    assert "moving average" not in first.out
