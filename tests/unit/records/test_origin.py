import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from slm_lab.records import origin as module
from slm_lab.records.origin import git_sha, provenance

SOURCE = Path(module.__file__).parent


def git(folder, *args):
    identity = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "commit.gpgsign=false",
    ]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *args],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository in which origin.py seems to lie."""
    file = tmp_path / "provenance.py"
    file.write_text("one\n")
    git(tmp_path, "init", "-q")
    monkeypatch.setattr(module, "__file__", str(file))
    return tmp_path


def commit(repository):
    git(repository, "add", "provenance.py")
    git(repository, "commit", "-q", "-m", "x")
    return git(repository, "rev-parse", "HEAD")


def test_the_commit_is_the_one_that_the_source_is_checked_out_at():
    try:
        head = git(SOURCE, "rev-parse", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the source is no git checkout")
    sha = git_sha()
    assert sha is not None
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", sha)
    assert sha.removesuffix("-dirty") == head


def test_a_clean_checkout_is_its_sha(repository):
    assert git_sha() is None
    sha = commit(repository)
    assert git_sha() == sha


def test_a_changed_file_makes_it_dirty_and_an_untracked_one_does_not(repository):
    sha = commit(repository)
    (repository / "notes.txt").write_text("mine")
    assert git_sha() == sha
    (repository / "provenance.py").write_text("two\n")
    assert git_sha() == f"{sha}-dirty"


def test_a_lab_installed_inside_a_repository_of_something_else_has_no_sha(
    repository, monkeypatch
):
    commit(repository)
    installed = repository / "venv" / "slm_lab"
    installed.mkdir(parents=True)
    (installed / "provenance.py").write_text("lab\n")
    monkeypatch.setattr(module, "__file__", str(installed / "provenance.py"))
    assert git_sha() is None


def test_outside_of_git_or_without_git_there_is_no_sha(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "__file__", str(tmp_path / "provenance.py"))
    assert git_sha() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_sha() is None


def test_the_provenance_has_packages_machine_and_seed_and_is_json():
    about = provenance(42)
    assert json.loads(json.dumps(about)) == about
    assert about["random_seed"] == 42
    assert about["git_sha"] == git_sha()
    for package in ("slm-lab", "torch", "gymnasium", "numpy"):
        assert about["packages"][package] == version(package)
    assert about["python"] == ".".join(map(str, sys.version_info[:3]))
    assert about["machine"]["cores"] == os.cpu_count()
    assert all(about["machine"].values())
    assert about["command"] == sys.argv


def test_a_package_that_is_not_installed_is_left_out(monkeypatch):
    def only_numpy(package):
        if package != "numpy":
            raise PackageNotFoundError(package)
        return "2.0"

    monkeypatch.setattr(module, "version", only_numpy)
    assert provenance(0)["packages"] == {"numpy": "2.0"}
