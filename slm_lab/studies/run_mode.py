"""The words of `slm-lab run`: a spec and a mode, which is a verb and perhaps a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

from typing_extensions import override

from slm_lab.core.errors import UsageError
from slm_lab.core.registry import nearest_name

Verb: TypeAlias = Literal["dev", "train", "search", "eval", "enjoy"]

RUN_MODES = (
    "dev",
    "train",
    "train@RUN",
    "search",
    "search@RUN",
    "eval@RUN",
    "enjoy@RUN",
)
PLAYING = ("eval", "enjoy")
"""The verbs that play the agents of a run."""


@dataclass(frozen=True)
class RunMode:
    """A verb, and a run: "latest", a folder, or None for a new run."""

    verb: Verb
    run: str | None

    @override
    def __str__(self) -> str:
        if self.run is None:
            return self.verb
        return f"{self.verb}@{self.run}"


def parse_mode(text: str) -> RunMode:
    """Parses "train" or "eval@latest". Raises UsageError, which lists the valid
    modes."""
    name, at, run = text.partition("@")
    for verb in get_args(Verb):
        if name != verb or (at and (not run or verb == "dev")):
            continue
        if verb in PLAYING and not at:
            raise UsageError(
                f"the mode {verb} needs a run: {verb}@latest or {verb}@FOLDER"
            )
        return RunMode(verb, run or None)
    nearest = nearest_mode(text)
    if nearest:
        raise UsageError(f'there is no mode "{text}"; did you mean {nearest}?')
    raise UsageError(
        f'there is no mode "{text}"; the modes are {", ".join(RUN_MODES)}, where RUN '
        "is latest, "
        "a spec's name, or a folder"
    )


def nearest_mode(text: str) -> str | None:
    """The mode that is nearest to `text`: "train@r" for "trian@r", "eval@latest" for
    "evaluate"."""
    name, at, run = text.partition("@")
    verb = nearest_name(
        name, [word for word in get_args(Verb) if word != "dev" or not at]
    )
    if verb is None:
        return None
    if at or verb in PLAYING:
        return f"{verb}@{run or 'latest'}"
    return verb


def nearest_command(word: str, commands: Sequence[str]) -> str:
    """The nearest text to a word in place of a command. It is one of the `commands`, or
    a mode with the command that it belongs to. Empty if nothing is near."""
    nearest = nearest_name(word.partition("@")[0], [*commands, *get_args(Verb)])
    if nearest not in get_args(Verb):
        return nearest or ""
    mode = nearest_mode(word) or "dev"
    if "@" in mode:
        return f"run {mode}"
    return f"run SPEC {mode}"


class RunWords(NamedTuple):
    """The arguments of `slm-lab run`; None where one was omitted."""

    spec_file: str | None
    spec_name: str | None
    mode: RunMode


def parse_words(words: Sequence[str]) -> RunWords:
    """[spec file, [name of the spec]], [mode], by default train. Raises UsageError."""
    *spec, last = words if words else ("train",)
    is_mode = last.partition("@")[0] in get_args(Verb) or (
        "@" in last
        and "." not in last
        and (len(words) == 1 or nearest_mode(last) is not None)
    )
    if len(words) < len(RunWords._fields) and not is_mode:
        spec = [*words]
        last = "train"
    file, name = [*spec, None, None][:2]
    check_spec_words(file, name)
    return RunWords(file, name, parse_mode(last))


def check_spec_words(file: str | None, name: str | None) -> None:
    """Raises UsageError if the word in place of a spec file is a run or a mode."""
    if file == "latest":
        raise UsageError(
            "latest is a run; train@latest resumes it, eval@latest evaluates it"
        )
    if file in get_args(Verb) and file != "dev":  # it never takes a run
        raise UsageError(
            f"{file} is a mode; did you mean {file}@{(name or 'latest').strip('@')}?"
        )
