"""The page of messages: each message that it quotes is still one of the lab's."""

import ast
import re
from pathlib import Path

import pytest

from tests.unit.spec.problems import messages
from tests.unit.spec.spec_data import PPO, changed

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^(?:### |\| )`(.+?)`(?:$| \|)", PAGE, re.MULTILINE)
FORMAT = re.compile(r"%[.\d]*[sdg]")
FEWEST_LETTERS = 6
"""Without its variable parts a message must say this much, or it would fit any text."""


def text_of(node: ast.AST) -> str | None:
    """The text of a string in the source, with `…` for what is filled in; None for
    other nodes."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "…" for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return FORMAT.sub("…", node.value)
    return None


@pytest.fixture(scope="module")
def texts():
    """Each text of several words in the source of the package, docstrings left out."""
    trees = [
        ast.parse(path.read_text("utf-8")) for path in (ROOT / "slm_lab").rglob("*.py")
    ]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    found = [text_of(node) for node in nodes if node not in docstrings]
    # A limit composes its message from the names of its factors.
    found += messages(changed(PPO, {"algorithm.minibatch_size": 1000}))
    return "\n".join({" ".join(text.split()) for text in found if text and " " in text})


def test_the_page_quotes_many_messages():
    assert len(QUOTED) > 60
    assert len(QUOTED) == len(set(QUOTED))


@pytest.mark.parametrize("message", QUOTED)
def test_a_quoted_message_is_still_in_the_source(message, texts):
    parts = message.strip("…").split("…")
    assert sum(map(str.isalpha, "".join(parts))) >= FEWEST_LETTERS
    assert re.search(".*".join(map(re.escape, parts)), texts)


def test_a_message_that_the_source_does_not_have_is_detected(texts):
    assert not re.search("there is no such .* on the moon", texts)
