"""The pages about Python: their code runs, and prints what they say."""

import contextlib
import doctest
import io
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

import slm_lab
from tests.support import PPO

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("page", "blocks_of_code"),
    [("trained_agents.md", 8), pytest.param("python.md", 6, marks=pytest.mark.slow)],
)
def test_the_code_of_a_page_prints_what_the_page_says(
    page, blocks_of_code, data, tmp_path, monkeypatch
):
    """`…` stands for any text."""
    pytest.importorskip("onnxruntime", reason="needs the extra export")
    monkeypatch.chdir(tmp_path)
    if page == "trained_agents.md":
        shutil.copytree(data, tmp_path / "data")
    blocks = BLOCK.findall((DOCS / page).read_text())
    names, checked = {}, 0
    for (language, code), (next_language, expected) in pairwise([*blocks, ("", "")]):
        if language != "python":
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, names)
        assert not next_language, f"no output below\n{code}"
        pattern = re.escape(expected).replace("…", ".*")
        printed = output.getvalue()
        assert re.fullmatch(pattern, printed, re.DOTALL), f"{code}\nprinted {printed}"
        checked += 1
    assert checked == blocks_of_code


TRAINS = (
    *("train", "search", "compare", "ab", "fork"),
    *("Search", "Comparison", "AbTest", "TrainingFailed"),
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in TRAINS else ())
        for name in slm_lab.__all__
        if name != "__version__"
    ],
)
def test_each_public_name_has_an_example_that_prints_what_it_says(
    name, data, tmp_path, monkeypatch, capsys
):
    shutil.copytree(data, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    search = {"agent.net.optim_spec.lr__choice": [0.01, 0.001]}
    Path("small.json").write_text(json.dumps({"small": {**PPO, "search": search}}))
    names = {"slm_lab": slm_lab}
    found = doctest.DocTestFinder(recurse=False).find(
        getattr(slm_lab, name), name, globs=names
    )
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert sum(len(each.examples) for each in found)
    for each in found:
        assert not runner.run(each).failed, capsys.readouterr().out


def test_no_class_of_the_package_has_the_name_of_a_class_that_it_publishes():
    source = Path(slm_lab.__file__).parent
    classes = [
        name
        for file in source.rglob("*.py")
        for name in re.findall(r"^class (\w+)", file.read_text(), re.MULTILINE)
    ]
    published = [name for name in slm_lab.__all__ if name[0].isupper()]
    assert [name for name in published if classes.count(name) != 1] == []
