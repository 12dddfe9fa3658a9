"""Words of other libraries: the table and the page map them to existing keys."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slm_lab.core.errors import SpecError
from slm_lab.env.wrappers import Argument, Arguments
from slm_lab.spec.json_schema import file_schema
from slm_lab.spec.load import load_spec, parse_spec
from slm_lab.spec.schema.messages import FOREIGN

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "coming_from.md").read_text(encoding="utf-8")
TROUBLES = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
PATH = re.compile(r"(?<![\w./\[-])(?:agent|env|meta)(?:\.[a-z_]+)+(?![\w(/:])")
SCHEMA = file_schema()


def paths(text: str) -> set[str]:
    """The dotted paths in a text, without the samplers of a search."""
    return {path.partition("__")[0] for path in PATH.findall(text)}


def alternatives(schema: dict) -> Iterator[dict]:
    """All blocks that a value with this schema may be."""
    if "$ref" in schema:
        yield from alternatives(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]])
    for word in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(word, ()):
            yield from alternatives(each)
    yield schema


def is_key(path: str) -> bool:
    """Whether some spec may have a key at a dotted path."""
    schemas = [SCHEMA["$defs"]["Spec"]]
    for key in path.split("."):
        blocks = (block for schema in schemas for block in alternatives(schema))
        schemas = [
            b["properties"][key] for b in blocks if key in b.get("properties", ())
        ]
    return bool(schemas)


@pytest.mark.parametrize("word", FOREIGN)
def test_a_foreign_word_leads_to_keys_that_exist(word):
    text = FOREIGN[word]
    wrong = [path for path in paths(text) if not is_key(path)]
    assert text.startswith(("use ", "not supported: "))
    assert not wrong


@pytest.mark.parametrize("path", sorted(paths(PAGE + TROUBLES)))
def test_a_key_on_a_page_exists(path):
    assert is_key(path)


@pytest.mark.parametrize(
    "path", ["agent.algorithm.n_steps", "env.n_envs", "meta.scale.x"]
)
def test_a_key_that_does_not_exist_is_detected(path):
    assert not is_key(path)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("agent.algorithm.gae_lambda", "unknown key; use agent.algorithm.lam"),
        ("agent.net.max_grad_norm", "unknown key; use agent.net.clip_grad_val"),
        ("agent.net.actor_lr", "unknown key; use agent.net.actor_optim_spec.lr"),
        ("meta.total_timesteps", "unknown key; use env.max_frame"),
        ("lr", "the spec has no ${lr}; use agent.net.optim_spec.lr"),
    ],
)
def test_an_error_translates_a_word_of_another_library(setting, message):
    with pytest.raises(SpecError) as error:
        load_spec("ppo_cartpole", sets=[f"{setting}=0.5"])
    assert [problem.message for problem in error.value.problems] == [message]


def test_an_error_translates_an_argument_of_an_environment():
    arguments = Arguments({"render_mode": Argument(str)}, open_ended=False)
    (problem,) = arguments.problems("CartPole-v1", "env", {"n_envs": 4}, {})
    assert problem.message == "CartPole-v1 does not accept it; use env.num_envs"


def test_the_page_explains_each_foreign_word():
    assert not [word for word in FOREIGN if f"`{word}`" not in PAGE]


def test_the_specs_on_the_page_are_valid():
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    specs = [spec for block in blocks for spec in yaml.safe_load(block).items()]
    assert specs
    for name, spec in specs:
        parse_spec(name, spec)
