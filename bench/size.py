"""Prints the size and the density of the package, room by room.

Size is counted in tokens: names, numbers, strings and operators. Lines are no measure,
because several facts can be packed into one. Density says how much a line asks of its
reader. Contract suites in `testing` are not counted. Python 3.11 counts an f-string as
one token; later versions count its parts.

python -m bench.size [FOLDER]
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

NOT_COUNTED = "testing"
TOKENS = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP)
MOST_POSITIONAL = 4
"""Arguments of a call that need no name."""
PER_1000 = ("ternaries", "pairs", "walruses")
"""Counts that are shown per 1,000 lines of code."""
HEADER = (
    "room",
    "files",
    "lines",
    "tokens",
    "a line",
    "ternaries",
    "a, b = x, y",
    "walruses",
    "imports",
    "positional",
    "isinstance(…Spec)",
)


def is_pair(node: ast.AST) -> bool:
    """Whether it binds several names to several values in one statement."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    )


def is_positional(node: ast.AST) -> bool:
    """Whether it is a call with more arguments by position than a reader can tell."""
    return isinstance(node, ast.Call) and len(node.args) > MOST_POSITIONAL


def asks_for_spec(node: ast.AST) -> bool:
    """Whether it asks for the class of a spec, such as `isinstance(spec, PPOSpec)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and re.search(r"Spec\b", ast.unparse(node.args[1])) is not None
    )


def lines_of_import(node: ast.AST) -> int:
    """The lines of an import; 0 for other nodes."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return 0
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def count(source: str) -> Counter[str]:
    """The counts of a file's text."""
    read = io.StringIO(source).readline
    every = tokenize.generate_tokens(read)
    tokens = [token for token in every if token.type in TOKENS]
    nodes = list(ast.walk(ast.parse(source)))
    return Counter(
        files=1,
        lines=source.count("\n"),
        code=len({token.start[0] for token in tokens}),
        tokens=len(tokens),
        ternaries=sum(isinstance(node, ast.IfExp) for node in nodes),
        pairs=sum(is_pair(node) for node in nodes),
        walruses=sum(isinstance(node, ast.NamedExpr) for node in nodes),
        imports=sum(lines_of_import(node) for node in nodes),
        positional=sum(is_positional(node) for node in nodes),
        specs=sum(asks_for_spec(node) for node in nodes),
    )


def count_rooms(folder: Path) -> dict[str, Counter[str]]:
    """The counts of each room, the largest first. Files beside the rooms are "."."""
    rooms: dict[str, Counter[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        *parents, _ = path.relative_to(folder).parts
        room = parents[0] if parents else "."
        if room != NOT_COUNTED:
            rooms.setdefault(room, Counter()).update(count(path.read_text("utf-8")))
    return dict(sorted(rooms.items(), key=lambda item: -item[1]["tokens"]))


def row(name: str, counts: Counter[str]) -> tuple[str, ...]:
    """The cells of a room, as in `HEADER`."""
    code = max(counts["code"], 1)
    lines = max(counts["lines"], 1)
    return (
        name,
        f"{counts['files']:,}",
        f"{counts['lines']:,}",
        f"{counts['tokens']:,}",
        f"{counts['tokens'] / code:.2f}",
        *(f"{1000 * counts[what] / code:.1f}" for what in PER_1000),
        f"{counts['imports'] / lines:.1%}",
        f"{counts['positional']:,}",
        f"{counts['specs']:,}",
    )


def main() -> None:
    """Prints a row per room, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("slm_lab"))
    folder = parser.parse_args().folder
    rooms = count_rooms(folder)
    total = sum(rooms.values(), Counter())
    rows = [HEADER, *(row(*room) for room in rooms.items()), row(folder.name, total)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        padded = zip(cells, widths[1:], strict=True)
        print(name.ljust(widths[0]), *(cell.rjust(width) for cell, width in padded))
    print("Ternaries, pairs and walruses are counted per 1,000 lines of code.")
    print(f"The contract suites in {folder.name}/{NOT_COUNTED} are not counted.")


if __name__ == "__main__":
    main()
