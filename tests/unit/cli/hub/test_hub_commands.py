"""`slm-lab push` and `pull`, against a local server."""

import errno
import io
import tempfile
import warnings
import zipfile
from pathlib import Path

import pytest

import slm_lab
from slm_lab.export import hub as hub_module
from tests.faults.lab import lab as lab_in
from tests.faults.lab import run_folder
from tests.unit.cli.hub.hub_server import TOKEN, Handler, hub_server

constants = pytest.importorskip(
    "huggingface_hub.constants", reason="needs the extra hub"
)
pytestmark = [
    pytest.mark.medium,
    pytest.mark.filterwarnings("ignore:Use 'content=<:DeprecationWarning"),
]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with hub_server() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        # LFS, which a test can speak
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield server


def lab(*words):
    return lab_in(Path.cwd(), *words)


def test_a_pushed_run_is_pulled_and_plays_like_the_original(hub, run, tmp_path):
    done = lab("push", run_folder(run), "ada/pole", "--session", "0")
    assert (done.code, done.both) == (0, f"{hub.url}/ada/pole\n")
    graph = "small_t0_trial_graph_mean_returns_ma_vs_frames.png"
    assert sorted(hub.files["ada/pole"]) == ["README.md", "run.zip", graph]
    card = hub.files["ada/pole"]["README.md"].decode()
    assert "slm-lab pull ada/pole\nslm-lab run enjoy@pole.zip --render" in card
    assert f"![Returns]({graph})" in card
    done = lab("pull", "ada/pole")
    assert (done.code, done.both) == (0, "pole.zip: slm-lab run eval@pole.zip\n")
    assert [each.name for each in tmp_path.iterdir()] == ["pole.zip"]
    own = slm_lab.load(run_folder(run), session=0).evaluate(3).returns
    assert slm_lab.load("pole.zip").evaluate(3).returns.tolist() == own.tolist()


def test_a_private_repository_can_be_requested(hub, run):
    assert lab("push", run_folder(run), "ada/secret", "--private").code == 0
    assert hub.private == {"ada/secret": True}


def test_pushing_again_replaces_the_old_archive(hub, run):
    for session in ("0", "0"):
        assert lab("push", run_folder(run), "ada/pole", "--session", session).code == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["push", "RUN", "pole"], "'pole': must be OWNER/NAME"),
        (["push", "RUN", "a/b/c"], "'a/b/c': must be OWNER/NAME"),
        (["push", "RUN", "ada/.."], "the Hub: Repo id must use alphanumeric chars"),
        (["pull", "ada/nothing"], "the Hub: there is no such shared run"),
        (["pull", "ada/empty"], "the Hub: there is no such shared run"),
        (["pull", "ada/hostile"], "is not a shared run, or is damaged: "),
        (
            ["pull", "ada/hostile", "--out", "here.zip"],
            "here.zip exists; choose another file with --out",
        ),
        (["pull", "ada/hostile", "--out", "pole"], "--out pole: must end in .zip"),
    ],
)
def test_bad_input_is_one_line(hub, run, args, message, tmp_path):
    hub.files |= {
        "ada/empty": {},
        "ada/hostile": {"run.zip": b"PK not a zip file" * 10},
    }
    (tmp_path / "here.zip").touch()
    done = lab(*(run_folder(run) if word == "RUN" else word for word in args))
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["here.zip"]


def test_without_a_token_nothing_is_sent(hub, run, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    done = lab("push", run_folder(run), "ada/pole")
    assert (done.code, done.err) == (
        2,
        "no token for the Hub: run hf auth login, or set HF_TOKEN\n",
    )
    assert hub.files == {}


def test_a_wrong_token_is_one_line(hub, run, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    done = lab("push", run_folder(run), "ada/pole")
    assert done.code == 2
    assert done.err.startswith("the Hub: ")
    assert "401" in done.err
    assert done.err.count("\n") == 1


def test_an_archive_that_is_too_large_is_not_downloaded(hub):
    hub.files["ada/large"] = {"run.zip": b"x"}
    hub.claimed = 2**31
    done = lab("pull", "ada/large")
    assert (done.code, done.err) == (
        2,
        "ada/large has 2048 MiB; a shared run has 1024\n",
    )


@pytest.mark.parametrize("request_to", ["/api/repos/create", "/commit/"])
def test_a_hub_that_falls_silent_ends_a_push_in_bounded_time(
    hub, run, monkeypatch, request_to
):
    monkeypatch.setattr("slm_lab.export.hub.SILENT_SECONDS", 0.2)
    hub.silent_at = request_to
    done = lab("push", run_folder(run), "ada/pole")
    assert (done.code, done.err) == (
        2,
        f"the Hub: no connection to {hub.url}: timed out\n",
    )
    assert hub.files.get("ada/pole", {}) == {}


def test_something_else_at_the_address_of_the_hub_is_named(hub, run, monkeypatch):
    monkeypatch.setattr(
        Handler, "do_POST", lambda self: self.answer_with(b"<html>please log in")
    )
    done = lab("push", run_folder(run), "ada/pole")
    assert done.code == 2
    assert done.err.startswith(f"the Hub: {hub.url} answers as no Hub does: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    "names", [["README.md"], ["hello.txt"], ["info/small_t0_s0.csv"]]
)
def test_an_archive_of_something_else_is_refused_by_its_name_on_the_hub(
    hub, names, tmp_path
):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name in names:
            file.writestr(name, "hello")
    hub.files["ada/other"] = {"run.zip": archive.getvalue()}
    done = lab("pull", "ada/other")
    assert done.code == 2
    assert done.err.startswith("ada/other: run.zip is not a ")
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_is_one_line(run, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    done = lab("pull", "ada/pole")
    assert done.code == 2
    assert done.err.startswith("the Hub: no connection to http://127.0.0.1:9: ")
    assert done.err.count("\n") == 1


def test_a_missing_extra_is_reported(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = lab("pull", "ada/pole")
    assert (done.code, done.err) == (
        2,
        'huggingface_hub is not installed; run: pip install "slm-lab[hub]"\n',
    )


def test_an_error_of_the_local_disk_is_not_one_of_the_hub(
    hub, run, monkeypatch, tmp_path
):
    assert lab("push", run_folder(run), "ada/pole", "--session", "0").code == 0

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("slm_lab.export.hub.write_atomically", full)
    done = lab("pull", "ada/pole")
    assert (done.code, done.err) == (1, "No space left on device: pole.zip\n")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_of_temporary_files_is_named(hub, run, monkeypatch):
    def full(*_, **__):
        warnings.warn("Not enough free disk space", stacklevel=1)
        raise OSError(errno.ENOSPC, "No space left on device")

    assert lab("push", run_folder(run), "ada/pole", "--session", "0").code == 0
    monkeypatch.setattr("huggingface_hub.HfApi.hf_hub_download", full)
    done = lab("pull", "ada/pole")
    assert (done.code, done.err) == (
        1,
        f"No space left on device: {tempfile.gettempdir()}\n",
    )


@pytest.mark.parametrize("kind", ["a link that leads nowhere", "a file made meanwhile"])
def test_nothing_that_lies_at_the_place_of_the_file_is_replaced(
    hub, run, monkeypatch, tmp_path, kind
):
    assert lab("push", run_folder(run), "ada/pole", "--session", "0").code == 0
    path = tmp_path / "pole.zip"
    if kind == "a file made meanwhile":
        monkeypatch.setattr(
            hub_module, "find_folder", lambda *_: path.write_bytes(b"mine")
        )
    else:
        path.symlink_to("nowhere")
    done = lab("pull", "ada/pole")
    assert done.code == 2
    assert done.err == "pole.zip exists; choose another file with --out\n"
    assert path.is_symlink() or path.read_bytes() == b"mine"
