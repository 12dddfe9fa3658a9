"""Runs for tests of commands, and the output of the commands."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

from tests.faults.lab import NAME, call_here, command, lab, run_folder, write_spec
from tests.support import ppo

SPEC = ppo(
    meta__max_session=2,
    meta__rigorous_eval=2,
    meta__eval_frequency=200,
    env__max_frame=500,
    env__normalize_obs=True,
)
RANDOM = {
    "agent": {"name": "Random", "algorithm": {"name": "Random"}},
    "env": {**ppo()["env"], "max_frame": 300},
    "meta": ppo()["meta"],
}


def trained(folder, spec, mode="train"):
    """The folder with a run of the spec; the file `out` has what the run printed."""
    write_spec(folder, spec)
    (folder / "data").mkdir()
    done = call_here(command(folder, mode), folder)
    assert (done.code, done.err) == (0, "")
    (folder / "out").write_text(done.out)
    return folder


def edited(folder, path, value):
    """Changes the spec that the run folder keeps; the path is dotted."""
    file = run_folder(folder) / f"{NAME}_spec.json"
    content = json.loads(file.read_text())
    *parents, last = path.split(".")
    block = content[NAME]
    for parent in parents:
        block = block[parent]
    block[last] = value
    file.write_text(json.dumps(content))


def lab_run(folder, mode, *options):
    """What `slm-lab run` does with the spec and the data of `folder`, in this
    process."""
    return call_here(command(folder, mode, *options), Path.cwd())


def table(output):
    """The rows of numbers that were printed."""
    return [
        line.split() for line in output.splitlines() if re.match(r"\s+(\d|all)", line)
    ]


def fingerprint(folder):
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in [folder, *folder.rglob("*")]
    }


def assert_bad_input(folder, args, words, code=2):
    """Asserts that the command prints one message with these words, and leaves no
    files."""
    before = sorted(folder.iterdir())
    done = lab(folder, *args)
    assert (done.code, done.out) == (code, ""), done.err
    assert [word for word in words if word not in done.err] == []
    assert "Traceback" not in done.err
    assert sorted(folder.iterdir()) == before


def heavy_imports(args, folder=None):
    """The heavy libraries that the command has imported at its end."""
    code = (
        "import atexit, sys\nheavy = {'torch', 'ray', 'plotly', 'matplotlib', "
        "'gymnasium', 'pandas', 'matplotlib.pyplot'}\natexit.register(lambda: "
        "print('imported', *sorted(heavy & set(sys.modules))))\nfrom slm_lab.cli.main "
        "import main\nmain()\n"
    )
    words = [sys.executable, "-W", "error", "-c", code, *args]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()[-1].split()[1:]
