"""`slm-lab example`: copies from a checkout and from a wheel."""

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slm_lab.cli import example
from slm_lab.cli.example import EXAMPLES, copy_example, example_path, list_examples
from slm_lab.core.errors import UsageError

CHECKOUT = Path(__file__).parents[3]


def files_in(path):
    """The text of every file in a folder, or of a file, by its place."""
    if path.is_file():
        return {"": path.read_text()}
    return {
        str(file.relative_to(path)): file.read_text()
        for file in path.rglob("*")
        if file.is_file()
        and not {"__pycache__", "build"} & set(file.parts)
        and ".egg-info" not in str(file)
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_copy_has_the_files_of_the_source_under_its_own_name(
    name, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    copy_example(name, out=None)
    source = CHECKOUT / EXAMPLES[name].place
    assert files_in(tmp_path / source.name) == files_in(source)
    assert f"wrote {source.name}; then: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "out", "then"),
    [
        ("lab_extras", None, "pip install ./lab_extras"),
        ("lab_extras", "my_lab", "pip install ./my_lab"),
        ("play_onnx", "tools/play.py", "python ./tools/play.py FILE.onnx ENV"),
        ("bench", None, "python -m bench.speed ppo_cartpole"),
        ("bench", "tools/bench", "cd tools && python -m bench.speed ppo_cartpole"),
    ],
)
def test_the_next_command_is_that_for_the_place_of_the_copy(
    name, out, then, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    copy_example(name, out and Path(out))
    assert capsys.readouterr().out.endswith(f"; then: {then}\n")


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_copy_that_fails_leaves_nothing_behind(name, tmp_path, monkeypatch):
    def fail(source, target, **_):
        Path(target).touch()
        raise OSError(errno.ENOSPC, "No space left on device", str(source))

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(UsageError, match=r"^cannot write .*: .*No space left"):
        copy_example(name, tmp_path / "bench")
    assert list(tmp_path.iterdir()) == []


def test_the_benches_keep_the_name_of_their_module(tmp_path):
    with pytest.raises(UsageError, match=r"the folder's name must be bench"):
        copy_example("bench", tmp_path / "speed")


def test_the_list_names_all(capsys):
    list_examples()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXAMPLES)


def test_what_exists_is_kept(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("mine")
    with pytest.raises(UsageError, match=r"exists: name another place with --out"):
        copy_example("play_onnx", file)
    assert file.read_text() == "mine"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match=r"no example benhc; .*did you mean bench"):
        copy_example("benhc", out=None)


@pytest.mark.medium
def test_a_wheel_has_all_examples(tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        checkout.mkdir(exist_ok=True)
        shutil.copy(CHECKOUT / file, checkout)
    for place in ("slm_lab/__init__.py", *(each.place for each in EXAMPLES.values())):
        source = CHECKOUT / place
        (checkout / place).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, checkout / place)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py", "--build-lib", "built"],
        cwd=checkout,
        check=True,
        timeout=120,
    )
    monkeypatch.setattr(example, "PACKAGE", checkout / "built" / "slm_lab")
    for name, each in EXAMPLES.items():
        path = example_path(name)
        assert path.is_relative_to(checkout / "built")
        assert files_in(path) == files_in(CHECKOUT / each.place)
