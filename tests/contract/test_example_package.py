"""The package of docs/examples, installed as a user would: found, checked, trained,
resumed."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from tests.faults.lab import LAB, Done, command, write_spec
from tests.support import made_once, ppo

pytestmark = pytest.mark.medium

DOCS = Path(__file__).parents[2] / "docs"
PACKAGE = DOCS / "examples" / "lab_extras"
SPEC = "awr_target"


def call(args, cwd, path, timeout=120):
    """Runs a command to its end, with `path` among the places where python looks for
    packages."""
    places = [str(path), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    done = subprocess.run(
        args,
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Done.of(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the package as pip leaves it."""

    def make(folder):
        source = folder / "source"  # a copy: building writes beside the source
        shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__"))
        options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            *options,
        ]
        done = call([*pip, "--target", str(folder / "site"), str(source)], folder, "")
        assert done.code == 0, done.err

    return made_once(tmp_path_factory, "installed", make) / "site"


@pytest.fixture
def spec_file(tmp_path):
    return Path(shutil.copy(PACKAGE / f"{SPEC}.json", tmp_path))


def rows(folder):
    (path,) = folder.glob(f"data/*/info/{SPEC}_t0_s0_session_df_train.csv")
    return pd.read_csv(path)


def test_the_spec_of_an_installed_package_is_accepted_and_its_keys_are_checked(
    installed, spec_file, tmp_path
):
    wrong = json.loads(spec_file.read_text())
    agent = wrong[SPEC]["agent"]
    agent["algorithm"]["temprature"] = agent["algorithm"].pop("temperature")
    agent["net"]["num_block"] = agent["net"].pop("num_blocks")
    agent["net"]["layer_norm"] = True
    wrong[SPEC]["env"]["lenght"] = wrong[SPEC]["env"].pop("length")
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    done = call(
        [str(LAB), "spec", "check", spec_file, "wrong.json"], tmp_path, installed
    )
    assert (done.code, done.err) == (2, "")
    assert done.out.splitlines() == [
        f"{SPEC}.json: {SPEC}: ok",
        f"wrong.json: {SPEC} has 4 problems",
        "  agent.algorithm.temprature = 0.5: unknown key; did you mean temperature?",
        "  agent.net.layer_norm = true: must be false",
        "  agent.net.num_block = 2: unknown key; did you mean num_blocks?",
        "  env.lenght = 20: Target-v0 does not accept it; did you mean length?",
    ]


def test_parts_of_a_package_that_is_not_installed_are_unknown(spec_file, tmp_path):
    done = call([str(LAB), "spec", "check", spec_file], tmp_path, tmp_path)
    assert done.code == 2
    assert "agent.algorithm.name = 'AWR': unknown algorithm" in done.out
    assert "agent.net.type = 'ResidualMLP': unknown net" in done.out


def test_the_package_trains_when_installed_and_resumes_when_only_on_the_path(
    installed, spec_file, tmp_path
):
    run = [str(LAB), "run", spec_file, SPEC]
    done = call([*run, "dev", "-s", "env.max_frame=2048"], tmp_path, installed)
    assert (done.code, done.err) == (0, "")
    assert "training awr_target: AWR on Target-v0" in done.out
    first = rows(tmp_path)
    assert first["frame"].iloc[-1] == 2048
    assert first["effective_share"].between(0, 1, inclusive="right").all()
    assert first["effective_share"].nunique() > 1

    place = tmp_path / "place"
    shutil.copytree(PACKAGE / "lab_extras", place / "lab_extras")
    more = ["train@latest", "-s", "env.max_frame=3072", "--import", "lab_extras"]
    done = call([*run, *more], tmp_path, place)
    assert (done.code, done.err) == (0, "")
    both = rows(tmp_path)
    assert both["frame"].iloc[-1] == 3072
    pd.testing.assert_frame_equal(both.iloc[: len(first)], first)
    assert both["opt_step"].is_monotonic_increasing
    assert both["effective_share"].notna().all()


def test_an_agent_of_the_package_is_shared_and_its_card_names_the_package(
    installed, tmp_path
):
    shutil.copy(PACKAGE / "al_cartpole.json", tmp_path)
    run = [str(LAB), "run", "al_cartpole.json", "al_cartpole", "dev"]
    done = call(run, tmp_path, installed)
    assert (done.code, done.err) == (0, "")
    export = [str(LAB), "export", "latest", "--to", "zip", "--out", "pole.zip"]
    assert call(export, tmp_path, installed).code == 0
    with zipfile.ZipFile(tmp_path / "pole.zip") as archive:
        card = archive.read("README.md").decode()
    assert "It needs lab-extras 0.1.0, which has parts of it." in card
    words = [str(LAB), "run", "eval@pole.zip", "--episodes", "2"]
    assert call(words, tmp_path, installed).code == 0
    missing = call(words, tmp_path, "")
    assert missing.code == 2
    assert "al_cartpole has 1 problem\n" in missing.both
    assert "'AdvantageLearning': unknown algorithm" in missing.both


PAGES = {
    "extending.md": (7, "AWR", "Reservoir", "ResidualMLP"),
    "off_policy_algorithm.md": (2, "AdvantageLearning"),
}
"""The pages about the package, each with its blocks of Python and the parts in them."""


@pytest.mark.parametrize("page", PAGES)
def test_the_docs_quote_the_package_exactly(page):
    text = (DOCS / page).read_text()
    shown = re.findall(
        r"^```(?:python|toml|json)\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL
    )
    sources = [
        path.read_text()
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".toml", ".json") and "build" not in path.parts
    ]
    assert shown
    for snippet in shown:
        assert any(snippet in source for source in sources), snippet


RUN_BLOCKS = """
import re, sys
text = open(sys.argv[1], encoding="utf-8").read()
blocks = re.findall(r"^```python\\n(.*?)^```$", text, re.M | re.S)
for n, block in enumerate(blocks):
    exec(compile(block, f"block {n}", "exec"), {"__name__": f"block_{n}"})
from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
for name in sys.argv[2:]:
    (registry,) = [r for r in (ALGORITHMS, MEMORIES, NETS) if r.get(name)]
    assert registry.load(name).__name__ == name
print(len(blocks))
"""
STABLE_ROW = re.compile(r"^\| .*\| `(slm_lab\.[\w.]+)` \| (.*) \|$", re.MULTILINE)
IMPORTED = re.compile(
    r"^ *from (slm_lab[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE
)


def stable_names():
    """The names that the page calls stable, each with its module."""
    text = (DOCS / "stable_api.md").read_text()
    return {
        (module, name)
        for module, names in STABLE_ROW.findall(text)
        for name in re.findall(r"`(\w+)`", names)
    }


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_python_in_the_docs_runs_as_it_stands(installed, tmp_path, page):
    count, *parts = PAGES[page]
    words = [sys.executable, "-c", RUN_BLOCKS, str(DOCS / page), *parts]
    done = call(words, tmp_path, installed)
    assert (done.code, done.out) == (0, f"{count}\n"), done.err


def test_the_names_that_the_docs_call_stable_exist():
    assert len(stable_names()) > 40
    for module, name in stable_names():
        assert hasattr(importlib.import_module(module), name), (module, name)


def test_the_package_imports_only_names_that_the_docs_call_stable():
    used = {
        (module, name.strip().partition(" as ")[0])
        for path in (PACKAGE / "lab_extras").glob("*.py")
        for module, several, one in IMPORTED.findall(path.read_text())
        for name in (several or one).split(",")
        if name.strip()
    }
    assert used
    assert used <= stable_names()


@pytest.mark.slow
def test_its_own_tests_keep_the_contracts_of_the_lab(installed, tmp_path):
    shutil.copytree(PACKAGE / "tests", tmp_path / "tests")
    shutil.copy(PACKAGE / "pyproject.toml", tmp_path)
    words = ["-m", "pytest", "-q", "-p", "no:dash", "-p", "no:hypothesispytest"]
    for library in ("gymnax", "brax"):
        if find_spec(library) is None:
            words.append(f"--ignore=tests/test_{library}.py")
    done = call([sys.executable, *words], tmp_path, installed, timeout=280)
    assert done.code == 0, done.out
    assert "skipped" not in done.out


def test_the_callback_of_the_package_is_found_by_its_name(installed, tmp_path):
    write_spec(tmp_path, ppo())
    words = command(tmp_path, "train", "--track", "milestones", "-q")
    done = call(words, tmp_path, installed)
    assert done.code == 0, done.err
    assert "small, Session 0: " in done.err
