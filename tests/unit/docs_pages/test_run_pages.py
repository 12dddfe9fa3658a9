"""Every `slm-lab` command in the pages is run, page by page, shortened where it is
long.

Commands for a network, a cluster, a screen, or for files of a reader, are only parsed.
See `test_commands`.
"""

import json
import re
import shutil
from itertools import pairwise

import pytest

from slm_lab.core.errors import LabError
from slm_lab.spec.load import load_spec
from tests.faults.lab import LAB, call, write_spec
from tests.support import ppo
from tests.unit.docs_pages.pages import PAGES, ROOT, commands

PARSED_ONLY = (
    "--cluster",
    "push",
    "pull",
    "--render",
    "board",
    "downloads/",
    "_2026_",
    "docs/examples",
    "--install-completion",
    "lab_extras",
    "envpool",
    "playground/",
    "pettingzoo:",
    "my_env:Kick",
    "my_lab/",
    "my_part/",
    "mine.yaml",
    "--data DIR",
    "--report",
    "--track",
    "--tag sweep",
    "--to zip --out pole.zip",
    "my_spec",
    "my_specs",
    "my.json",
)
"""Parts of commands that need what a test does not have, or write what it has."""
FEW = 1_500
"""Frames of a training, or as many more as it takes until an agent learns."""
EARLY = "1000"
"""The frame of a fork, before the end of such a training."""
BIG = (
    "humanoid",
    "a3c_gae_pong",
    "ppo_atari",
    "minigrid",
    "dsac_pendulum",
    "droq",
    "CarRacing",
    "benchmark classic",
)
"""Parts of commands whose shortest training takes minutes, or whose simulator is no
extra of the tests. Other tests train these specs and suites."""
MY_ENV = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
gymnasium.register("MyEnv-v0", CartPoleEnv, max_episode_steps=200)
"""
PLOTTED = ["ppo_CartPole", "ppo_Acrobot", "a2c_CartPole", "a2c_Acrobot"]
FINISHED = {
    "runs": ["ppo_cartpole"],
    "plot": PLOTTED,
    "troubleshooting": ["ppo_cartpole", "ppo_acrobot"],
    "off_policy_algorithm": ["al", "dqn"],
}
"""Runs that a page takes for granted."""


def frames(words):
    """The budget of a training: a little more than it takes until the agent learns."""
    named = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
    file, *rest = named or ["demo", "ppo_cartpole"]
    sets = [word for word in words if "=" in word and "max_frame" not in word]
    try:
        spec = load_spec(file, rest[0] if rest else None, sets, warn=False)
    except LabError:  # a recipe or a file that the page has written
        return FEW
    return FEW + getattr(spec.agent.algorithm, "training_start_step", 0)


def shortened(words):
    """The command with small numbers."""
    command, text = words[0], " ".join(words)
    if command == "ab":
        return [*words, "--both", f"env.max_frame={FEW}", "--seeds", "6"]
    if command == "fork":
        return [
            EARLY if before == "--frame" else word
            for before, word in pairwise(["", *words])
        ]
    if command not in ("run", "compare") or re.search(r"(eval|enjoy)@", text):
        return (
            [*words, "--episodes", "2"] if "@" in text and command == "run" else words
        )
    budget = frames(words)
    small = {
        "max_frame": budget * (2 if "train@" in text else 1),
        "max_session": 2,
        "max_run": 1,
        "reset_frequency": 1_250,
    }

    def smaller(match):
        return f"{match[1]}={small[match[2]]}" if match[2] in small else match[0]

    words = [re.sub(r"^([\w.]+\.(\w+))=.*", smaller, word) for word in words]
    words = ["1" if word == "1,2" else word for word in words]
    if "max_frame" not in text and "@" not in text:
        words += ["-s", f"env.max_frame={budget}"]
    if "max_session" not in text and not re.search(
        "async|impala|dppo|a3c|compare|@", text
    ):
        words += ["-s", "meta.max_session=1"]
    if " search" in text and "@" not in text:
        words += ["-s", "meta.max_trial=2"]
    return [*words, "--seeds", "1"] if command == "compare" else words


def expanded(words, folder):
    """The words with the paths that a shell puts in place of a pattern."""
    paths = {
        word: sorted(map(str, folder.glob(word)))
        for word in words
        if re.search(r"/.*\*", word)
    }
    return [path for word in words for path in paths.get(word, [word])]


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A folder with the files of a reader; `my_env` is like an installed package."""
    page = (ROOT / "docs" / "your_environment.md").read_text()
    (tmp_path / "line.py").write_text(
        re.search(r"```python\n(import .*?)```", page, re.S)[1]
    )
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "my_env.py").write_text(MY_ENV)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    write_spec(tmp_path, ppo(env__max_frame=FEW))
    for words in (
        "run spec.json --quiet --name reader",
        "export latest --to zip --out pole.zip",
    ):
        assert call([str(LAB), *words.split()], tmp_path).code == 0
    return tmp_path


def finished(folder, name):
    """A finished run of a spec of this name."""
    (run,) = (folder / "data").glob("small_*")
    stem = f"{name}_{run.name.removeprefix('small_')}"
    copy = folder / "data" / stem
    shutil.copytree(run, copy)
    for file in sorted(copy.rglob("*"), reverse=True):
        if file.is_file() and file.name.startswith("small"):
            file.rename(file.with_name(file.name.replace("small", name, 1)))
    for file in copy.glob("model/*.json"):  # name the files of checkpoints
        file.write_text(file.read_text().replace("small_t", f"{name}_t"))
    for file in copy.glob("*_spec.json"):
        content = json.loads(file.read_text())
        env = "Acrobot-v1" if "acrobot" in name.lower() else "CartPole-v1"
        content = {
            name if key == "small" else key: value for key, value in content.items()
        }
        content[name]["env"]["name"] = env
        # `--name reader` is that of the original
        content.get("_run", {}).pop("name", None)
        file.write_text(json.dumps(content))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(commands(page))], ids=lambda page: page.stem
)
def test_the_commands_of_a_page_work_one_after_another(page, reader):
    for name in FINISHED.get(page.stem, ()):
        finished(reader, name)
    for words in commands(page):
        text = " ".join(words)
        if any(part in text for part in (*PARSED_ONLY, *BIG)):
            continue
        done = call([str(LAB), *expanded(shortened(words), reader)], reader)
        assert done.code == 0, (words, done.out[-2000:], done.err[-2000:])
