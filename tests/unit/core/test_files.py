import os

import pytest

from slm_lab.core.errors import LabError
from slm_lab.core.files import new_file, open_own, refuse_links


def test_a_file_is_written_and_read_back(tmp_path):
    with new_file(tmp_path / "a") as stream:
        stream.write(b"one")
    with new_file(tmp_path / "a") as stream:
        stream.write(b"2")
    assert (tmp_path / "a").read_bytes() == b"2"


@pytest.mark.parametrize("there", [True, False])
def test_what_a_link_leads_to_stays_as_it_is(tmp_path, there):
    precious = tmp_path / "precious"
    if there:
        precious.write_bytes(b"precious")
    (tmp_path / "link").symlink_to(precious)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
    with pytest.raises(LabError, match="link is a symbolic link") as told:
        open_own(tmp_path / "link", flags)
    assert len(str(told.value).splitlines()) == 1
    assert precious.exists() == there
    assert not there or precious.read_bytes() == b"precious"


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_own(tmp_path / "gone", os.O_RDWR)


def test_links_and_pipes_anywhere_in_a_folder_are_found(tmp_path):
    inner = tmp_path / "run" / "info"
    inner.mkdir(parents=True)
    (inner / "rows.csv").touch()
    refuse_links(tmp_path / "run")
    (inner / "more").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(LabError, match="more is a symbolic link"):
        refuse_links(tmp_path / "run")
    (inner / "more").unlink()
    os.mkfifo(inner / "pipe")
    with pytest.raises(LabError, match="pipe is neither a file nor a folder"):
        refuse_links(tmp_path / "run")


def test_the_folder_itself_may_be_reached_by_a_link(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run", target_is_directory=True)
    refuse_links(tmp_path / "link")
