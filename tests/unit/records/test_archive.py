"""Untrusted archives: only files of the lab are unpacked, and only into its folder."""

import io
import stat
import zipfile
from pathlib import Path

import pytest
import torch

from slm_lab.core.errors import UsageError
from slm_lab.records import archive
from slm_lab.records.archive import unpacked

GOOD = {"small_spec.json": b"{}", "info/small_t0_s0_session_df_train.csv": b"frame\n"}


def weights(compression=zipfile.ZIP_STORED) -> bytes:
    """A checkpoint file, compressed afterwards."""
    plain, other = io.BytesIO(), io.BytesIO()
    torch.save({"w": torch.zeros(1000)}, plain)
    with (
        zipfile.ZipFile(plain) as source,
        zipfile.ZipFile(other, "w", compression) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return other.getvalue()


def written(folder: Path, files, compression=zipfile.ZIP_STORED) -> Path:
    path = folder / "shared.zip"
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in files:
            file.writestr(name, content)
    return path


def link(name):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


def test_the_files_of_a_run_are_unpacked_and_removed_again(tmp_path):
    plain = io.BytesIO()
    torch.save({"w": torch.ones(3)}, plain)
    files = {**GOOD, "model/small_t0_s0_best_000001_5.pt": plain.getvalue()}
    with unpacked(str(written(tmp_path, files.items()))) as folder:
        found = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in Path(folder).rglob("*")
            if path.is_file()
        }
        assert found == files
        assert Path(folder).name == "shared"
    assert not Path(folder).exists()


def test_other_runs_stay_as_they_are(tmp_path):
    (tmp_path / "a.zip").mkdir()
    for run in (
        "latest",
        str(tmp_path),
        str(tmp_path / "missing.zip"),
        str(tmp_path / "a.zip"),
    ):
        with unpacked(run) as folder:
            assert folder == run


HOSTILE = {
    "a path upwards": [("../evil.json", b"")],
    "an absolute path": [("/tmp/evil.json", b"")],
    "a backslash": [("info\\..\\..\\evil.json", b"")],
    "another folder": [("other/evil.json", b"")],
    "code": [("evil.py", b"")],
    "a package": [("info/__init__.py", b"")],
    "a page with a script": [("evil.html", b"")],
    "a search": [("small_search.jsonl", b"")],
    "a hidden file": [(".bashrc", b"")],
    "a folder": [("info/", b"")],
    "a link": [(link("small_spec.json"), b"/etc/passwd")],
    "a name twice": [("a.json", b"1"), ("A.json", b"2")],
    "too many files": [(f"{number}.json", b"") for number in range(1001)],
    "a pickle": [("model/a.pt", b"\x80\x04cos\nsystem\n(S'touch evil'\ntR.")],
    "an empty checkpoint": [("model/a.pt", b"")],
    "a compressed checkpoint": [("model/a.pt", weights(zipfile.ZIP_DEFLATED))],
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_hostile_archive_is_refused_in_one_line_and_leaves_nothing(
    kind, tmp_path, monkeypatch
):
    outside = tmp_path / "outside"
    outside.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(outside))
    path = written(tmp_path, [*GOOD.items(), *HOSTILE[kind]])
    refused = pytest.raises(
        UsageError, match=r"shared\.zip is not a shared run, or is damaged: .*"
    )
    with refused as caught, unpacked(str(path)):
        pass
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == [outside, path]
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_a_compressed_archive_is_refused_before_a_byte_is_inflated(
    compression, tmp_path
):
    path = written(tmp_path, [*GOOD.items(), ("bomb.csv", bytes(10**7))], compression)
    with pytest.raises(UsageError, match="has compressed files"), unpacked(str(path)):
        pass


def test_sizes_are_bounded(tmp_path, monkeypatch):
    path = written(tmp_path, [*GOOD.items(), ("rows.csv", bytes(3 << 20))])
    with unpacked(str(path)):
        pass
    monkeypatch.setattr(archive, "MAX_BYTES", 2 << 20)
    with pytest.raises(UsageError, match="or over 2 MiB"), unpacked(str(path)):
        pass


@pytest.mark.parametrize("zip64", [False, True])
def test_a_long_list_of_files_is_not_even_read(zip64, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_INDEX", 10_000)
    if zip64:
        monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 100)
    path = written(tmp_path, [(f"{number}.json", b"") for number in range(400)])
    monkeypatch.setattr(archive, "ZipFile", None)
    with (
        pytest.raises(UsageError, match="its list of files is too long"),
        unpacked(str(path)),
    ):
        pass


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\5\6", bytes(200)])
def test_a_file_that_is_no_archive_is_refused(content, tmp_path):
    (tmp_path / "shared.zip").write_bytes(content)
    refused = pytest.raises(UsageError, match=r"or is damaged: shared\.zip is no zip")
    with refused, unpacked(str(tmp_path / "shared.zip")):
        pass


def test_damage_is_reported(tmp_path):
    path = written(tmp_path, GOOD.items())
    content = bytearray(path.read_bytes())
    content[content.index(b"frame\n")] ^= 1
    path.write_bytes(content)
    with (
        pytest.raises(UsageError, match="or is damaged: Bad CRC-32"),
        unpacked(str(path)),
    ):
        pass
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(UsageError, match="is not a shared run"), unpacked(str(path)):
        pass


def test_an_archive_that_ends_within_a_file_is_refused(tmp_path, monkeypatch):
    """The error of zipfile has no text."""

    def read(self, name):
        raise EOFError

    monkeypatch.setattr(zipfile.ZipFile, "read", read)
    path = written(tmp_path, GOOD.items())
    with (
        pytest.raises(UsageError, match=r"or is damaged: it ends too early$"),
        unpacked(str(path)),
    ):
        pass
