"""Tags and a note that a user adds to a run, also after it has ended.

They are one small file in the run folder, so that they move with it. A training never
writes it."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from slm_lab.core.errors import UsageError
from slm_lab.core.files import read_object, write_json
from slm_lab.core.recorded import recordable_text, value_at
from slm_lab.storage.run_dir import RunDir, origin_of

MOST_TAGS = 50
LONGEST_TAG = 60
LONGEST_NOTE = 2000
"""Tags of a run, letters of a tag and of a note."""
_SEPARATORS = set("=,")


class Annotations(NamedTuple):
    """What a user has added to a run."""

    tags: tuple[str, ...] = ()
    """The tags, sorted."""
    note: str = ""


def read_annotations(run_dir: RunDir) -> Annotations:
    """The tags and the note of a run; by default the note that it began with."""
    content = read_object(run_dir.annotations_file)
    tags = {tag for tag in value_at(content, "tags", []) if isinstance(tag, str)}
    began_with = value_at(origin_of(run_dir.spec_file), "note", "")
    return Annotations(tuple(sorted(tags)), value_at(content, "note", began_with))


def annotate(
    run_dir: RunDir,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    note: str | None = None,
) -> Annotations:
    """Adds and removes tags, and replaces the note; "" removes it. Two processes that
    change one run at once lose nothing. Raises UsageError for what is no tag, and if
    the folder cannot be written."""
    check_tags(add)
    check_note(note)
    with _alone(run_dir.root):
        before = read_annotations(run_dir)
        tags = {*before.tags, *add} - {*remove}
        if len(tags) > MOST_TAGS:
            raise UsageError(
                f"{run_dir.root} would have {len(tags)} tags; it may have {MOST_TAGS}"
            )
        new_note = before.note if note is None else recordable_text(note, LONGEST_NOTE)
        after = Annotations(tuple(sorted(tags)), new_note)
        try:
            write_json(run_dir.annotations_file, after._asdict())
        except OSError as error:
            raise UsageError(
                f"{run_dir.annotations_file} cannot be written: {error.strerror}"
            ) from error
    return after


def check_tags(tags: Sequence[str]) -> None:
    """Raises UsageError for a text that is no tag."""
    for tag in tags:
        fits = 0 < len(tag) <= LONGEST_TAG and tag.isprintable() and tag == tag.strip()
        if not fits or _SEPARATORS & set(tag):
            raise UsageError(
                f"tag {tag!r}: must have 1 to {LONGEST_TAG} printable letters, none of "
                "them = or a comma"
            )


def check_note(note: str | None) -> None:
    """Raises UsageError for a note that is too long."""
    if note is not None and len(note) > LONGEST_NOTE:
        raise UsageError(f"the note must have at most {LONGEST_NOTE} letters")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Inside this context no other process annotates the run. A training may run: it
    locks a file, not the folder. Raises UsageError if the folder cannot be locked."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot open {folder}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    except OSError as error:
        raise UsageError(f"cannot lock {folder}: {error.strerror}") from error
    finally:
        os.close(descriptor)
