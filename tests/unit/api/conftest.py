import copy
import json
import subprocess
import sys

import pytest

from tests.support import PPO


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A folder of runs with one run: two Sessions of a small PPO with evaluations."""
    root = tmp_path_factory.mktemp("runs")
    meta = {**PPO["meta"], "max_session": 2, "save_interval": 1, "rigorous_eval": 2,
            "eval_frequency": 500}  # fmt: skip
    (root / "spec.json").write_text(json.dumps({"small": {**copy.deepcopy(PPO), "meta": meta}}))
    command = [sys.executable, "-m", "slm_lab.cli.main", "run", "spec.json", "small"]
    subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=120)
    return root / "data"


@pytest.fixture
def folder(data):
    (folder,) = (path for path in data.iterdir() if path.is_dir())
    return folder
