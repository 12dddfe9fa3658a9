"""Run folders whose files are damaged: every reader raises an error of the lab, or
shows less."""

import os
import re
from contextlib import suppress

import pytest

from slm_lab.charts.diff import diff
from slm_lab.core.errors import LabError
from slm_lab.doctor.diagnosis import findings_of
from slm_lab.records.overview import overview_of
from slm_lab.records.progress import TrialProgress
from slm_lab.records.run_record import RunRecord, RunStatus
from slm_lab.records.tidy import delete, selected
from tests.unit.records.runs import write_ended

NUMBER = re.compile(r"(?<=[ ,\[:])-?\d+(\.\d+)?(?=[,\]\n }])")


def rewrite(change):
    return lambda path: path.write_bytes(change(path.read_bytes()))


def numbers(text):
    return rewrite(lambda content: NUMBER.sub(text, content.decode()).encode())


def in_its_place(make):
    def damage(path):
        path.unlink()
        make(path)

    return damage


DAMAGES = {
    "missing": lambda path: path.unlink(),
    "empty": rewrite(lambda content: b""),
    "half": rewrite(lambda content: content[: len(content) // 2]),
    "a list": rewrite(lambda content: b"[1, 2]"),
    "a number": rewrite(lambda content: b"3"),
    "another object": rewrite(lambda content: b'{"a": {"env": [1], "meta": 3}}'),
    "deep": rewrite(lambda content: b"[" * 100_000),
    "NaN": numbers("NaN"),
    "huge numbers": numbers("9" * 400),
    "negative": numbers("-7"),
    "UTF-16": rewrite(lambda content: content.decode().encode("utf-16")),
    "no text": rewrite(lambda content: b"\xe9\xff" + content),
    "zeros": rewrite(lambda content: bytes(5000)),
    "twice": rewrite(lambda content: content * 2),
    "a folder": in_its_place(lambda path: path.mkdir()),
    "a dangling link": in_its_place(lambda path: path.symlink_to("/nowhere/at/all")),
    "a link to itself": in_its_place(lambda path: path.symlink_to(path.name)),
    "a device": in_its_place(lambda path: path.symlink_to("/dev/zero")),
    "a pipe": in_its_place(os.mkfifo),
}
FILES = {
    "spec": lambda run: run.spec_file,
    "trial spec": lambda run: run.trial_spec_file(0),
    "metrics": lambda run: run.trial_metrics_file(0),
    "rows": lambda run: run.session(0, 0).rows,
    "lock": lambda run: run.root / ".lock",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_raises_nothing_but_errors_of_the_lab(file, damage, tmp_path):
    run = write_ended(tmp_path, "small")
    (run.root / ".lock").write_text("1")
    DAMAGES[damage](FILES[file](run))
    assert overview_of(run).status in RunStatus
    for read in (
        lambda: diff("small", "small", tmp_path),
        lambda: findings_of(RunRecord(run).trial_at(0)),
        lambda: TrialProgress(RunRecord(run).trial_at(0)).look(),
    ):
        with suppress(LabError):
            read()


def test_a_run_with_a_link_in_place_of_a_file_is_kept(tmp_path):
    run = write_ended(tmp_path / "data", "small", mode="dev")
    outside = tmp_path / "outside"
    chosen = selected(tmp_path / "data", dev=True)
    run.session(0, 0).rows.rename(outside)
    run.session(0, 0).rows.symlink_to(outside)
    assert selected(tmp_path / "data", dev=True) == []
    ((_, why),) = delete(tmp_path / "data", chosen)
    assert "symbolic link" in why
    assert outside.is_file()
    assert run.spec_file.is_file()
