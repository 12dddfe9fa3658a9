"""Words that the shell completes: spec files, specs, modes, runs and keys of `-s`.

An error completes nothing. The command itself reports it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from typer import Context

from slm_lab.core.errors import LabError
from slm_lab.studies.run_mode import RUN_MODES


def _completer(
    words: Callable[[Context, str], Iterator[str]],
) -> Callable[[Context, str], list[str]]:
    """The words as a list. Typer leaves out those that begin otherwise."""

    def complete(ctx: Context, incomplete: str) -> list[str]:
        with suppress(LabError, OSError):
            return list(dict.fromkeys(words(ctx, incomplete)))
        return []

    return complete


@_completer
def spec_files(ctx: Context, incomplete: str) -> Iterator[str]:
    """Files in the folder that is typed, and names of shipped files."""
    from slm_lab.spec.read import SUFFIXES, shipped_files

    for path in sorted(Path(incomplete).parent.glob("*")):
        if path.is_dir() and not path.name.startswith("."):
            yield f"{path}/"
        elif path.suffix in SUFFIXES:
            yield str(path)
    yield from (path.name for path in shipped_files() if path.parent.name != "recipe")


@_completer
def spec_names(ctx: Context, incomplete: str) -> Iterator[str]:
    """The specs in the file."""
    yield from _contents(ctx)


@_completer
def ab_words(ctx: Context, incomplete: str) -> Iterator[str]:
    """Words that may follow `slm-lab ab`: files, and the specs in the first."""
    if _typed(ctx):
        yield from spec_names(ctx, incomplete)
    yield from spec_files(ctx, incomplete)


@_completer
def run_words(ctx: Context, incomplete: str) -> Iterator[str]:
    """Words that may follow `slm-lab run`: a file or an algorithm, a spec, a mode."""
    typed = _typed(ctx)
    if not typed:
        from slm_lab.recipes.recipe import recipe_files

        yield from recipe_files()
        yield from spec_files(ctx, incomplete)
    if len(typed) == 1:
        yield from spec_names(ctx, incomplete)
    verb, at, _ = incomplete.partition("@")
    if at:
        yield from (f"{verb}@{run}" for run in runs(ctx, ""))
    else:
        yield from (mode.removesuffix("RUN") for mode in RUN_MODES)


@_completer
def runs(ctx: Context, incomplete: str) -> Iterator[str]:
    """Runs in the data folder, the newest first."""
    from slm_lab.storage.run_dir import newest_first, runs_in

    data = Path(ctx.params.get("data") or "data")
    yield "latest"
    yield from (run.root.name for run in newest_first(runs_in(data)))


@_completer
def keys(ctx: Context, incomplete: str) -> Iterator[str]:
    """Variables of the spec, and dotted paths of its keys."""
    from slm_lab.spec.parse import setting_names

    contents = _contents(ctx)
    typed = [contents[word] for word in _typed(ctx) if word in contents]
    for content in typed or contents.values():
        yield from (f"{name}=" for name in setting_names(content))


def _typed(ctx: Context) -> list[str]:
    names = ("spec_file", "file", "spec_name", "name", "mode")
    words = [ctx.params.get(name) for name in names]
    words += ctx.params.get("words") or ()  # of a command that takes several
    # those before an option without a value
    return [word for word in words if word] or ctx.args


def _contents(ctx: Context) -> Mapping[str, Any]:
    """The specs of the file that is typed, as they stand there."""
    from slm_lab.spec.load import spec_names as names_in
    from slm_lab.spec.read import find_file, read_file

    content = read_file(find_file((*_typed(ctx), "demo.json")[0]))
    return {name: content[name] for name in names_in(content)}
