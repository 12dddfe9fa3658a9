"""The command `example`: copies of the example package and of the benches."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from slm_lab.cli.display.screen import console, print_line
from slm_lab.core.errors import UsageError
from slm_lab.core.registry import suggestion

PACKAGE = Path(__file__).parents[1]


class Example(NamedTuple):
    """Files to copy."""

    place: str
    """The path of the files in the source. A wheel has them in `slm_lab/examples`."""
    purpose: str
    then: str
    """The command that comes next, with the `target` of the copy and its `parent`."""


EXAMPLES = {
    "lab_extras": Example(
        place="docs/examples/lab_extras",
        purpose="a package with an algorithm, a net, environments and a parallel mode",
        then="pip install {target}",
    ),
    "play_onnx": Example(
        place="docs/examples/play_onnx.py",
        purpose="plays an exported agent without the lab",
        then="python {target} FILE.onnx ENV",
    ),
    "bench": Example(
        place="bench",
        purpose="the speed of training, beside other libraries",
        then="cd {parent} && python -m bench.speed ppo_cartpole",
    ),
}
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")


def list_examples() -> None:
    """Prints the names and what each is for."""
    screen = console()
    for name, example in EXAMPLES.items():
        print_line(screen, f"{name:<12}{example.purpose}")


def copy_example(name: str, out: Path | None) -> None:
    """Copies an example to `out`, by default to the current folder under its own name.
    Raises UsageError for an unknown name, and for a place that exists or cannot be
    written; then nothing is left there."""
    if name not in EXAMPLES:
        names = ", ".join(EXAMPLES)
        hint = suggestion(name, EXAMPLES)
        raise UsageError(f"there is no example {name}; there are {names}{hint}")
    source = example_path(name)
    target = out or Path(source.name)
    if name == "bench" and target.name != name:
        raise UsageError(f"--out {target}: the folder's name must be bench, its module")
    if target.exists():
        raise UsageError(f"{target} exists: name another place with --out")
    try:
        if source.is_dir():
            shutil.copytree(source, target, ignore=LEFT_OUT)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    except OSError as error:
        reason = error.strerror
        if isinstance(error, shutil.Error):
            _, _, reason = error.args[0][0]  # of the first file
        shutil.rmtree(target, ignore_errors=True)
        with suppress(OSError):
            target.unlink()
        raise UsageError(f"cannot write {target}: {reason}") from error
    print_line(console(), f"wrote {target}; then: {_next_command(name, target)}")


def _next_command(name: str, target: Path) -> str:
    """The command that comes next, for where the copy is."""
    # pip takes a bare name for the name of a package.
    path = target if target.is_absolute() else f"./{target}"
    command = EXAMPLES[name].then.format(target=path, parent=target.parent)
    return command.removeprefix("cd . && ")


def example_path(name: str) -> Path:
    """The file or folder of an example, in a wheel or in a checkout."""
    place = Path(EXAMPLES[name].place)
    installed = PACKAGE / "examples" / place.name
    if installed.exists():
        return installed
    return PACKAGE.parent / place
