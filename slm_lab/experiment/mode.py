"""The mode, third word of `slm-lab run`: a verb, and the run to apply it to."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from slm_lab.core.errors import UsageError

Verb: TypeAlias = Literal["dev", "train", "search", "eval", "enjoy"]

MODES = ("dev", "train", "train@RUN", "search", "search@RUN", "eval@RUN", "enjoy@RUN")
ALWAYS_OF_A_RUN = ("eval", "enjoy")


@dataclass(frozen=True)
class Mode:
    """A verb, and a run: "latest", a folder, or None for a new run."""

    verb: Verb
    run: str | None


def parse_mode(text: str) -> Mode:
    """Parses "train" or "eval@latest". Raises UsageError, which lists the valid modes."""
    known = f"the modes are {', '.join(MODES)}, where RUN is latest or a run folder"
    name, at, run = text.partition("@")
    for verb in get_args(Verb):
        if name != verb or (at and (not run or verb == "dev")):
            continue
        if verb in ALWAYS_OF_A_RUN and not at:
            raise UsageError(f"the mode {verb} needs a run: {verb}@latest or {verb}@FOLDER")
        return Mode(verb, run or None)
    raise UsageError(f'there is no mode "{text}"; {known}')
