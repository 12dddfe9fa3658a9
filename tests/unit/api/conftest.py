"""A training from Python, made once."""

import contextlib
import io
import json
import pickle

import pytest

import slm_lab
from tests.support import PPO, made_once
from tests.unit.api.events import Events


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with a training of two Sessions with evaluations, its callbacks and its
    output."""

    def make(folder):
        meta = {
            **PPO["meta"],
            "max_session": 2,
            "save_interval": 1,
            "rigorous_eval": 2,
            "eval_frequency": 500,
        }
        spec_file = folder / "spec.json"
        spec_file.write_text(json.dumps({"small": {**PPO, "meta": meta}}))
        events, out = Events(), io.StringIO()
        with contextlib.redirect_stdout(out):
            slm_lab.train(spec_file, seed=3, data=folder / "data", callbacks=[events])
        (folder / "seen").write_bytes(pickle.dumps((events.seen, out.getvalue())))

    folder = made_once(tmp_path_factory, "from_python", make)
    seen, out = pickle.loads((folder / "seen").read_bytes())
    return folder, Events(seen), out


@pytest.fixture(scope="session")
def data(trained):
    """The folder of runs with the run of this training."""
    return trained[0] / "data"


@pytest.fixture
def folder(data):
    (folder,) = (path for path in data.iterdir() if path.is_dir())
    return folder
