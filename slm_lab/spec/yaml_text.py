"""Parses the YAML of spec files: YAML 1.1 with the numbers of JSON.

3e-4 is a number; 1:30 and dates are strings; yes, no, on and off are booleans.
Duplicate keys are errors. Values of an alias count at every use."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from typing_extensions import override
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from slm_lab.core.errors import Problem, SpecError
from slm_lab.spec.limits import YAML_VALUES, check_extent, too_deep

INT, FLOAT, MERGE = (f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "merge"))
DROPPED = (INT, FLOAT, "tag:yaml.org,2002:timestamp")
WHOLE = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$")
DECIMAL = re.compile(
    r"""^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
    |[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|NaN|-?Infinity)$""",
    re.VERBOSE,
)
NO_NUMBERS = ("nan", "inf", "infinity")


def parse_yaml(text: str, where: str) -> Any:
    """The content of a YAML text of the file `where`. Raises SpecError with the
    line."""
    loader: yaml.SafeLoader | None = None
    try:
        loader = _loader(text, where)
        root = loader.get_single_node()
        if root is None:
            return None
        # Before construction, because a two-byte alias may expand to the whole file.
        check_extent(root, _parts, YAML_VALUES, where)
        problem = next(_faults(root, ""), None)
        if problem is not None:
            raise SpecError(where, [problem])
        return loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "file"
        if mark:
            line = f"line {mark.line + 1}"
        raise SpecError.of(where, line, f"is not YAML: {error.problem}") from None
    except RecursionError:
        raise too_deep(where) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise SpecError.of(where, "file", f"is not YAML: {error}") from None
    # as the package reads "!!bool x" and "!!int ''"
    except (LookupError, AttributeError):
        text = "is not YAML: a value is not what its tag, such as !!int, says"
        raise SpecError.of(where, "file", text) from None
    finally:
        if loader is not None:
            loader.dispose()


def first_fault(text: str, where: str) -> Problem | None:
    """The first duplicate key, NaN or infinity of a text of YAML, or of JSON without
    tabs."""
    try:
        root = _loader(text, where).get_single_node()
    except yaml.YAMLError:  # JSON with another fault behind the first
        return None
    if root is None:
        return None
    return next(_faults(root, ""), None)


def _loader(text: str, where: str) -> yaml.SafeLoader:
    class Loader(yaml.SafeLoader):
        """Raises SpecError as soon as there are too many values."""

        composed = 0

        @override
        def compose_node(self, parent: Node | None, index: int) -> Node | None:
            self.composed += 1
            if self.composed > 2 * YAML_VALUES:  # keys are nodes too
                most = f"{YAML_VALUES:,} values, the most that a spec file may hold"
                raise SpecError.of(where, "file", f"holds more than {most}")
            return super().compose_node(parent, index)

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in rows if tag not in DROPPED]
        for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(INT, WHOLE, list("-+0123456789"))
    Loader.add_implicit_resolver(FLOAT, DECIMAL, list("-+0123456789.NI"))
    return Loader(text)


def _parts(node: Node) -> Iterable[Node]:
    if isinstance(node, MappingNode):
        return [value for _, value in node.value]
    if isinstance(node, SequenceNode):
        return node.value
    return ()


def _faults(node: Node, path: str) -> Iterator[Problem]:
    if isinstance(node, SequenceNode):
        for index, entry in enumerate(node.value):
            yield from _faults(entry, f"{path}.{index}")
    elif isinstance(node, MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = "?"
            if isinstance(key, ScalarNode):
                name = key.value
            if isinstance(key, ScalarNode) and key.tag != MERGE:
                if name in seen:
                    yield Problem(_line(key), f'the key "{name}" is given twice')
                seen.add(name)
            yield from _faults(value, f"{path}.{name}" if path else name)
    elif node.tag == FLOAT and node.value.lower().lstrip("+-.") in NO_NUMBERS:
        yield Problem(
            _line(node), f"{path} is {node.value}, and must be a finite number"
        )


def _line(node: Node) -> str:
    return f"line {node.start_mark.line + 1}"
