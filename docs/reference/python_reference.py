"""Writes the reference page of the Python API from its docstrings.

python docs/reference/python_reference.py > docs/python_reference.md
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from itertools import pairwise
from typing import Any

import slm_lab
from slm_lab import testing
from slm_lab.core.errors import LabError

NAMES = (
    "train",
    "fork",
    "search",
    "compare",
    "ab",
    "load",
    "load_run",
    "Run",
    "Search",
    "Comparison",
    "AbTest",
    "Agent",
    "Episodes",
    "TrainingFailed",
)
INTERNAL = {"followed", "source"}
COLUMNS = 88
HEAD = """# Python reference

```python
import slm_lab

budget = {"env.max_frame": 4000, "meta.max_session": 1}
run = slm_lab.train("ppo_cartpole", sets=budget, quiet=True)
```

![train makes a Run, load makes an Agent of it](images/python_api.svg)

What `import slm_lab` offers, written from the docstrings of the code.
[From Python](python.md) and [use a trained agent](trained_agents.md) explain it with
examples.
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD]
    for name in NAMES:
        part = getattr(slm_lab, name)
        parts += [
            f"## {name}",
            *(_class(part) if inspect.isclass(part) else _function(part)),
        ]
    parts += [
        "## LabError",
        "`slm_lab.core.errors.LabError`",
        *_text(inspect.getdoc(LabError)),
        "## Testing",
        *_text(inspect.getdoc(testing)),
    ]
    for name in testing.__all__:
        part = getattr(testing, name)
        parts += [
            f"### {name}",
            f"`slm_lab.testing.{name}`",
            *(_case(part) if is_dataclass(part) else _contract(part)),
        ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _function(function: Callable[..., Any]) -> Iterator[str]:
    (tree,) = _tree(function).body
    yield _signature(tree)
    yield from _text(inspect.getdoc(function))


def _class(part: type) -> Iterator[str]:
    yield from _text(inspect.getdoc(part))
    members: dict[str, list[str]] = {}
    own = [base for base in part.__mro__ if base.__module__.startswith("slm_lab")]
    for base in own[:1] if issubclass(part, Exception) else own:
        (tree,) = _tree(base).body
        init = [
            node.body for node in tree.body if getattr(node, "name", "") == "__init__"
        ]
        for body in (tree.body, *init):
            for name, lines in (*_attributes(body), *_methods(body)):
                members.setdefault(name, lines)
    for name, lines in members.items():
        if not name.startswith("_") and name not in INTERNAL:
            yield from (f"### {part.__name__}.{name}", *lines)


def _case(part: type) -> Iterator[str]:
    """Its fields with their defaults, and what they mean."""
    yield from _text(inspect.getdoc(part))
    (tree,) = _tree(part).body
    docs = dict(_attributes(tree.body))
    rows = ["| field | default | meaning |", "|---|---|---|"]
    for field in fields(part):
        default = "" if field.default is MISSING else f"`{field.default!r}`"
        meaning = " ".join(" ".join(docs.get(field.name, [])).split())
        rows.append(f"| `{field.name}` | {default} | {meaning} |")
    yield "\n".join(rows)


def _contract(part: type) -> Iterator[str]:
    """Its properties, each the name of a test as a sentence."""
    yield from _text(inspect.getdoc(part))
    names = [name for name in vars(part) if name.startswith("test_")]
    sentences = [name.removeprefix("test_").replace("_", " ") for name in names]
    yield "\n".join(f"- {sentence}" for sentence in sentences)


def _attributes(body: list[ast.stmt]) -> Iterator[tuple[str, list[str]]]:
    """Names that are assigned and have a docstring behind them."""
    for node, after in pairwise(body):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [getattr(node, "target", None)]
        )
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            for target in targets:
                if isinstance(target, ast.Attribute | ast.Name):
                    name = (
                        target.attr if isinstance(target, ast.Attribute) else target.id
                    )
                    yield name, list(_text(inspect.cleandoc(str(after.value.value))))


def _methods(body: list[ast.stmt]) -> Iterator[tuple[str, list[str]]]:
    for node in body:
        if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
            is_property = any(
                ast.unparse(each) == "property" for each in node.decorator_list
            )
            head = [] if is_property else [_signature(node)]
            yield node.name, [*head, *_text(text)]


def _signature(node: ast.AST) -> str:
    """The call as a block of code, with a parameter per line where it is long."""
    assert isinstance(node, ast.FunctionDef)
    node.args.args = [each for each in node.args.args if each.arg != "self"]
    returned = f" -> {_plain(node.returns)}" if node.returns is not None else ""
    line = f"{node.name}({_plain(node.args)}){returned}"
    if len(line) > COLUMNS:
        wide = re.sub(r", (?=\*|\w+: )", ",\n    ", _plain(node.args))
        line = f"{node.name}(\n    {wide},\n){returned}"
    return f"```python\n{line}\n```"


def _plain(node: ast.AST) -> str:
    """Source code with spaces around `=`, without the quotes around the names of
    types."""
    text = re.sub(r"'((?:\w+\.)?[A-Z]\w+)'", r"\1", ast.unparse(node))
    return re.sub(r"(?<=: )([^:=]+)=", r"\1 = ", text)


def _text(docstring: str | None) -> Iterator[str]:
    """Its paragraphs, examples as code and sections as tables."""
    for block in re.split(r"\n\s*\n", docstring or ""):
        if block.startswith(">>>"):
            yield f"```python\n{block}\n```"
        elif match := re.match(r"(Args|Raises|Returns):\n", block):
            entries = textwrap.dedent(block[match.end() :])
            yield _table(match[1], re.split(r"\n(?=\S)", entries))
        else:
            yield re.sub(r"\bdocs/([\w/]+)\.md\b", r"[\1](\1.md)", block)


def _table(kind: str, entries: list[str]) -> str:
    if kind == "Returns":
        return f"Returns: {' '.join(' '.join(entries).split())}"
    rows = [f"| {'argument' if kind == 'Args' else 'error'} | meaning |", "|---|---|"]
    for entry in entries:
        name, _, meaning = " ".join(entry.split()).partition(": ")
        rows.append(f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def _tree(part: Any) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(part)))


if __name__ == "__main__":
    sys.stdout.write(reference())
