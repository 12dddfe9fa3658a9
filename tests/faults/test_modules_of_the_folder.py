"""Files of the working directory: none replaces a module, and a script that names
itself starts no second training."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.faults.lab import LAB, PATIENCE
from tests.support import ppo

pytestmark = pytest.mark.medium
MODULES = ("typer", "queue", "yaml", "random", "pandas", "tempfile", "gymnasium")
ENV = """
import gymnasium, numpy
from gymnasium import spaces

class Bandit(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (1,), numpy.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        return numpy.zeros(1, numpy.float32), float(action), True, False, {}

gymnasium.register("OfThisFolder-v0", Bandit)
"""
OTHER = {
    "train": "slm_lab.train({spec!r}, {how})",
    "search": "slm_lab.search({spec!r}, {how})",
    "compare": "slm_lab.compare({spec!r}, modes=['all_reduce'], workers=1, seeds=1, "
    "{how})",
}


def small(**changes):
    sizes = {"env__max_frame": 128, "env__num_envs": 2, "meta__log_frequency": 64}
    search = {"agent.algorithm.gamma__choice": [0.9]}
    spec = ppo(**sizes, agent__algorithm__minibatch_size=32, **changes)
    return {"small": {**spec, "search": search}}


def run_in_group(args, cwd, seconds=4 * PATIENCE):
    """The exit code and the output of a command; kills its group if it does not end in
    time."""
    out = subprocess.PIPE
    process = subprocess.Popen(
        args,
        cwd=cwd,
        stdout=out,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=seconds)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
    return process.returncode, text


@pytest.fixture
def planted(tmp_path):
    """A working directory with files named like modules of Python and of packages."""
    folder = tmp_path / "here"
    folder.mkdir()
    for module in MODULES:
        code = (
            f"open({str(tmp_path)!r} + '/executed', 'a').write('{module} ')\nraise "
            "ImportError"
        )
        (folder / f"{module}.py").write_text(code)
    (folder / "of_this_folder.py").write_text(ENV)
    spec = small(env__name="OfThisFolder-v0", env__vectorization_mode="async")
    (folder / "spec.json").write_text(json.dumps(spec))
    return folder


WORDS = ["run", "spec.json", "small", "train", "--import", "of_this_folder", "--quiet"]


@pytest.mark.parametrize(
    "command",
    [[str(LAB)], [sys.executable, "-m", "slm_lab"]],
    ids=["slm-lab", "python -m slm_lab"],
)
def test_a_command_executes_no_file_of_the_folder_in_place_of_a_module(
    planted, command
):
    done = run_in_group([*command, *WORDS], planted)
    assert done[0] == 0, done[1]
    words = ["run", "eval@latest", "--episodes", "2", "--import", "of_this_folder"]
    done = run_in_group([*command, *words], planted)
    assert done[0] == 0, done[1]
    assert not (planted.parent / "executed").exists()


@pytest.mark.parametrize(
    "verb",
    [
        "train",
        *(pytest.param(v, marks=pytest.mark.slow) for v in ("search", "compare")),
    ],
)
def test_a_script_elsewhere_executes_no_file_of_the_folder_in_place_of_a_module(
    planted, verb
):
    script = planted.parent / "scripts" / "script.py"
    script.parent.mkdir()
    how = "imports=['of_this_folder'], quiet=True"
    script.write_text(
        f"import slm_lab\n{OTHER[verb].format(spec='spec.json', how=how)}\n"
    )
    done = run_in_group([sys.executable, str(script)], planted)
    assert done[0] == 0, done[1]
    assert not (planted.parent / "executed").exists()


MESSAGE = "was called while itself was being imported; put the call under `if __name__"


@pytest.mark.parametrize("verb", OTHER)
def test_a_script_that_names_itself_is_told_to_guard_its_call(tmp_path, verb):
    call = OTHER[verb].format(
        spec=small(env__name="OfThisFolder-v0"), how="imports=['itself']"
    )
    note = "import os\nopen(f'import_{os.getpid()}', 'w')\n"
    (tmp_path / "itself.py").write_text(f"{ENV}\n{note}import slm_lab\n{call}\n")
    code, text = run_in_group([sys.executable, "itself.py"], tmp_path)
    assert code == 1
    assert f"slm_lab.{verb} {MESSAGE}" in text.splitlines()[-1]
    assert len(list(tmp_path.glob("import_*"))) == 2, (
        "the script, and the process that refuses it"
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("name", "options"),
    [("OfThisFolder-v0", ["--import", "itself"]), ("itself:OfThisFolder-v0", [])],
    ids=["--import", "env.name"],
)
def test_a_command_that_imports_a_script_without_a_guard_is_refused(
    tmp_path, name, options
):
    (tmp_path / "spec.json").write_text(json.dumps(small(env__name=name)))
    again = (
        f"subprocess.run([{str(LAB)!r}, 'run', 'spec.json', *{options!r}], check=True)"
    )
    for call in ("slm_lab.train('spec.json')", again):
        (tmp_path / "itself.py").write_text(
            f"{ENV}\nimport slm_lab, subprocess\n{call}\n"
        )
        path = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [str(LAB), "run", "spec.json", "small", *options],
            cwd=tmp_path,
            env=path,
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
            check=False,
        )
        assert done.returncode == 2
        assert MESSAGE in done.stderr
        assert not (tmp_path / "data").exists()
