"""The pages about Python: their code runs, and prints what they say."""

import contextlib
import io
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support import PPO

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["trained_agents.md"])
def test_the_code_of_a_page_prints_what_the_page_says(page, tmp_path, monkeypatch):
    """`…` stands for any text."""
    pytest.importorskip("onnxruntime", reason="needs the extra export")
    (tmp_path / "spec.json").write_text(json.dumps({"small": PPO}))
    command = [sys.executable, "-m", "slm_lab.cli.main", "run", "spec.json", "small"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    monkeypatch.chdir(tmp_path)
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
        assert re.fullmatch(pattern, output.getvalue()), f"{code}\nprinted {output.getvalue()}"
        checked += 1
    assert checked == 9
