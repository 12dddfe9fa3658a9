"""The table of torch's names is that of the installed torch."""

import json
import subprocess
import sys

import pytest
import torch

from slm_lab.spec.schema.optim import LossSpec, LRSchedulerSpec, OptimSpec
from slm_lab.spec.schema.torch_table import TABLE, activation_class, entries, refusals
from tests.contract.parts_table import arc, layer
from tests.support import ppo
from tests.unit.spec.generate_torch_table import as_text, torch_table


def test_the_table_matches_the_newest_torch():
    if not hasattr(torch.nn, "LinearCrossEntropyLoss"):
        pytest.skip("this torch is older than the table")
    table = torch_table()
    assert json.loads(TABLE.read_text(encoding="utf-8")) == json.loads(
        as_text(table)
    ), "run: python tests/unit/spec/generate_torch_table.py"


@pytest.mark.parametrize(
    "name", [n for n, e in entries("optimizers").items() if not e.refused]
)
def test_torch_accepts_every_optimizer_with_the_arguments_of_its_spec(name):
    if not hasattr(torch.optim, name.removeprefix("Global")):
        pytest.skip("this torch is older than it")
    spec = OptimSpec.model_validate({"name": name})
    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    optimizer = getattr(torch.optim, name.removeprefix("Global"))(
        [parameter], **spec.args
    )
    assert optimizer.defaults["lr"] == spec.args["lr"]


@pytest.mark.parametrize(
    "name", [n for n, e in entries("losses").items() if not e.refused]
)
def test_torch_accepts_every_loss(name):
    spec = LossSpec.model_validate({"name": name})
    assert getattr(torch.nn, spec.name)(**spec.args) is not None


def test_counts_written_as_floats_are_counts():
    spec = LRSchedulerSpec.model_validate({"name": "LinearToZero", "frame": 1e7})
    assert spec.args == {"frame": 10_000_000}
    assert type(spec.args["frame"]) is int


@pytest.mark.parametrize(
    "name", ["relu", "ReLU", "leaky_relu", "LeakyReLU", "selu", "tanh"]
)
def test_activations_have_their_names_in_either_spelling(name):
    assert issubclass(getattr(torch.nn, activation_class(name)), torch.nn.Module)


def test_an_unknown_activation_has_no_class():
    assert activation_class("rely") is None
    assert all(activation_class(name) == name for name in refusals("activations"))


PARSES = """
import json, sys
from slm_lab.spec.load import parse_spec
parse_spec("small", json.loads(sys.argv[1]))
sys.exit("torch" in sys.modules)
"""


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kind", "keys", "imports"),
    [
        ("MLPNet", {"hid_layers": [8]}, False),
        ("TorchArcNet", {"arc": arc(layer("Tanh"))}, True),
    ],
)
def test_only_a_spec_with_an_arc_imports_torch(kind, keys, imports):
    data = json.dumps(ppo(agent__net={"type": kind, **keys}))
    done = subprocess.run([sys.executable, "-c", PARSES, data], check=False)
    assert done.returncode == imports
