"""What is generated from the models: the reference page and the JSON Schema."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.spec.json_schema import file_schema
from slm_lab.spec.read import read_file, shipped_files
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.meta import MetaSpec
from tests.unit.spec.spec_data import ALL, PPO, changed

DOCS = Path(__file__).parents[3] / "docs"
HEAVY = ["torch", "ray", "gymnasium", "pandas", "plotly", "matplotlib"]


@pytest.fixture(scope="module")
def validator():
    return Draft202012Validator(file_schema())


@pytest.fixture(scope="module")
def page():
    return runpy.run_path(str(DOCS / "reference" / "spec_reference.py"))["reference"]()


def test_the_page_in_docs_is_up_to_date(page):
    assert (DOCS / "spec_reference.md").read_text(encoding="utf-8") == page, (
        "run: python docs/reference/spec_reference.py > docs/spec_reference.md"
    )


def test_every_key_says_what_it_means():
    registries = (ALGORITHMS, MEMORIES, NETS)
    models = [
        registry.get(name).params
        for registry in registries
        for name in registry.names()
    ]
    for model in [*models, EnvSpec, MetaSpec]:
        assert all(field.description for field in model.model_fields.values()), model


def test_the_json_schema_is_closed_but_for_arguments_of_environments():
    schema = file_schema()
    spec = schema["$defs"]["Spec"]
    assert spec["additionalProperties"] is False
    assert schema["$defs"]["EnvSpec"]["additionalProperties"] is True
    assert schema["$defs"]["MetaSpec"]["additionalProperties"] is False
    algorithms = schema["$defs"]["AgentSpec"]["properties"]["algorithm"]["anyOf"]
    names = [block["properties"]["name"]["const"] for block in algorithms]
    assert names == ALGORITHMS.names()
    assert all(block["additionalProperties"] is False for block in algorithms)
    ppo = algorithms[names.index("PPO")]
    assert {"clip_val_loss", "training_frequency"} <= set(ppo["properties"])
    assert set(ppo["required"]) == {"name", "gamma", "time_horizon"}


@pytest.mark.parametrize("path", shipped_files(), ids=lambda path: path.stem)
def test_the_json_schema_accepts_the_shipped_files(validator, path):
    errors = validator.iter_errors(read_file(path))
    assert [error.message for error in errors] == []


@pytest.mark.parametrize("name", ALL)
def test_the_json_schema_accepts_what_the_models_accept(validator, name):
    errors = validator.iter_errors({name: ALL[name]})
    assert [error.message for error in errors] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("agent__algorithm__gama", 0.9),
        ("agent__net__actor_hid_layer", [3]),
        ("agent__net__optim_spec__lrr", 0.9),
        ("meta__max_sessions", 1),
        ("agent__algorithm__gamma", 1.5),
        ("agent__memory__name", "OnPolicyBatchReply"),
        ("meta__actor_learner", {"correction": "vtrase"}),
        ("meta__actor_learner", {"correction": {"name": "vtrace", "rho_bar": 0}}),
        ("meta__actor_learner", {"train_ratio": 0}),
        ("meta__actor_learner", {"train_ratio": 1001}),
        ("meta__actor_learner", {"train_ratio": "fast"}),
    ],
)
def test_the_json_schema_refuses_what_the_models_refuse(validator, path, value):
    raw = {"s": changed(PPO, **{path: value})}
    assert list(validator.iter_errors(raw))


@pytest.mark.parametrize(
    "module", ["slm_lab.spec", "slm_lab.spec.load", "slm_lab.spec.json_schema"]
)
def test_specs_need_nothing_heavy(module):
    code = f"import sys, json, {module}; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert set(HEAVY) & set(json.loads(run.stdout)) == set()


def test_the_json_schema_speaks_of_bounds_in_standard_words():
    text = json.dumps(file_schema())
    assert '"minimum": 1' in text
    assert not any(f'"{word}":' in text for word in ("ge", "gt", "le", "lt"))
