"""Loads and checks the specs of a file: reads it, applies `-s`, reports all problems at
once."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slm_lab.core.errors import MAX_PRINTED, Problem, SpecError
from slm_lab.core.registry import nearest_name
from slm_lab.spec import parse as parsing
from slm_lab.spec.blocks import well_formed_blocks
from slm_lab.spec.budget import budget_of, decays
from slm_lab.spec.checks.legacy import drop_legacy_keys, with_lab_names
from slm_lab.spec.checks.warnings import has_few_rows
from slm_lab.spec.override import (
    Setting,
    apply_settings,
    parse_setting,
    unfilled,
    variables,
)
from slm_lab.spec.read import find_file, read_file, shipped_name
from slm_lab.spec.schema.agent import PARTS
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.spec import Spec

logger = logging.getLogger(__name__)

BLOCKS = ("agent", "env", "meta")
A_SHARE = 'leave it out to end there, or give a share of the budget, such as "20%"'


@contextmanager
def warnings_held() -> Iterator[None]:
    """Holds back the warnings about specs that are loaded inside the block, and logs
    each once at the end. So a command that is refused says only why."""
    held: list[logging.LogRecord] = []

    def hold(record: logging.LogRecord) -> bool:
        held.append(record)
        return False

    logger.addFilter(hold)
    try:
        yield
    finally:
        logger.removeFilter(hold)
    for record in {record.getMessage(): record for record in held}.values():
        logger.handle(record)


def load_spec(
    file: str | Path,
    name: str | None = None,
    sets: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    warn: bool = True,
    for_search: bool = False,
) -> Spec:
    """The spec `name` of `file`, with `sets` ("key=value", as `-s`) and then
    `overrides` (dotted path to value) applied. `file` is a path or the name of a
    shipped file. `name` may be None if the file holds one spec. `warn` logs ignored and
    suspicious keys, and problems of the `search` block unless `for_search`. Raises
    SpecError with every problem of the spec."""
    where, content = _read(file)
    name = chosen_name(where, content, name)
    loaded = _loaded(name, content[name], sets, overrides or {})
    if not for_search:
        loaded = loaded.for_training()
    if warn:
        _warn(where, [loaded])
    return _spec_or_error(f"{where}: {name}", loaded)


def load_specs(
    file: str | Path, sets: Sequence[str] = (), warn: bool = True
) -> dict[str, Spec]:
    """Every spec of `file` by name, with `sets` applied to each; `warn` of suspicious
    keys. Raises the SpecError of the first spec with problems."""
    where, content = _read(file)
    loaded = {
        name: _loaded(name, content[name], sets, {}) for name in spec_names(content)
    }
    if warn:
        _warn(where, list(loaded.values()))
    return {
        name: _spec_or_error(f"{where}: {name}", spec) for name, spec in loaded.items()
    }


def check_file(file: str | Path, sets: Sequence[str] = ()) -> list[parsing.Parsed]:
    """Checks every spec of a file, with `sets` ("key=value") applied. Raises SpecError
    for an unreadable file, or a file without specs."""
    in_file, content = _read(file)
    names = spec_names(content)
    if not names:
        raise SpecError.of(in_file, "file", "holds no spec {agent, env, meta}")
    settings, problems = _settings_of(sets, {})
    if problems:
        raise SpecError("the command line", problems)
    placeholders = []
    for name in names:
        raw_spec = content[name]
        raw, setting_problems = _settle(raw_spec, settings)
        unfilled_names = variables(
            {key: value for key, value in raw.items() if key != "spec_params"}
        )
        parsed = (
            parsing.parse_template(name, raw)
            if unfilled_names
            else _parse(name, raw, raw_spec, settings)
        )
        all_problems = [*setting_problems, *parsed.problems]
        parsed = parsed._replace(
            problems=all_problems, where=f"{in_file}: {name}", variables=unfilled_names
        )
        placeholders.append(parsed)
    return placeholders


def parse_spec(name: str, raw: Mapping[str, Any]) -> Spec:
    """A spec from JSON data, as from `Spec.to_json`. Raises SpecError."""
    parsed = parsing.parse(name, raw)
    _warn(name, [parsed])
    return _spec_or_error(name, parsed)


def spec_names(content: Mapping[str, Any]) -> list[str]:
    """The keys of a file that hold specs: with agent, env or meta, and without a
    leading "_"."""
    return [
        key
        for key, value in content.items()
        if isinstance(key, str)
        and not key.startswith("_")
        and isinstance(value, Mapping)
        and any(block in value for block in BLOCKS)
    ]


def _read(file: str | Path) -> tuple[str, dict[str, Any]]:
    path = find_file(file)
    return shipped_name(path), read_file(path)


def _settle(
    raw: Any, settings: Sequence[Setting]
) -> tuple[dict[str, Any], list[Problem]]:
    """A raw spec of a file, converted from the old form and with `settings` applied."""
    if not isinstance(raw, Mapping):
        return {}, [Problem("spec", "must be a block {agent, env, meta}", raw)]
    data, problems = parsing.unwrap_lists_of_one(raw)
    if not all(map(parsing.concerns_search, problems)):
        return data, []  # parse reports them
    return apply_settings(data, settings, _with_defaults)


def _loaded(
    name: str, raw: Any, sets: Sequence[str], overrides: Mapping[str, Any]
) -> parsing.Parsed:
    """A spec of a file with all settings applied, and all its problems."""
    settings, problems = _settings_of(sets, overrides)
    data, setting_problems = _settle(raw, settings)
    if not isinstance(raw, Mapping):
        return parsing.Parsed(None, [*problems, *setting_problems], [], None)
    unfilled_names = unfilled(
        {key: value for key, value in data.items() if key != "spec_params"}
    )
    parsed = _parse(name, data, raw, settings)
    reported = {problem.path for problem in unfilled_names}
    rest = [problem for problem in parsed.problems if problem.path not in reported]
    return parsed._replace(
        problems=[*problems, *setting_problems, *unfilled_names, *rest],
        of_search=[*filter(parsing.concerns_search, unfilled_names), *parsed.of_search],
    )


def _parse(
    name: str,
    data: Mapping[str, Any],
    raw: Mapping[str, Any],
    settings: Sequence[Setting],
) -> parsing.Parsed:
    """The spec in `data`, which is `raw` with `settings`. If these shorten the budget,
    schedules that no longer end within it are suspicious. The default then replaces a
    log frequency of the file that leaves few rows."""
    parsed = parsing.parse(name, data)
    typed = {setting.key for setting in settings}
    spec = parsed.spec
    before = budget_of(parsing.unwrap_lists_of_one(raw)[0])
    if spec is None or before is None or not spec.env.max_frame < before:
        return parsed
    late = [
        str(
            Problem(
                decay.end_path, f"comes after the end of the run; {A_SHARE}", decay.end
            )
        )
        for decay in decays(spec.to_json())
        if spec.env.max_frame < decay.end <= before and decay.end_path not in typed
    ]
    is_coarse = has_few_rows(spec.env, spec.meta) and not spec.logs_by_default
    if is_coarse and "meta.log_frequency" not in typed:
        parsed = parsing.parse(
            name, {**data, "meta": {**data["meta"], "log_frequency": None}}
        )
        note = (
            f"meta.log_frequency = {spec.default_log_frequency}: the file's "
            f"{spec.log_frequency} leaves too few rows of {spec.env.max_frame:,} "
            "frames"
        )
        parsed = parsed._replace(adapted=[note])
    return parsed._replace(suspicious=[*parsed.suspicious, *late])


def _with_defaults(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The valid blocks of a spec with all their defaults."""
    plain, _ = drop_legacy_keys(with_lab_names(raw)[0])
    blocks = vars(well_formed_blocks(plain)).items()
    known = {
        key: block.model_dump(mode="json")
        for key, block in blocks
        if isinstance(block, Block)
    }
    return {"agent": {key: known.pop(key) for key in PARTS if key in known}, **known}


def _settings_of(
    sets: Sequence[str], overrides: Mapping[str, Any]
) -> tuple[list[Setting], list[Problem]]:
    """`-s` and overrides as one list, and a problem for each `-s` that is no
    key=value."""
    settings: list[Setting] = []
    problems: list[Problem] = []
    for text in sets:
        try:
            settings.append(parse_setting(text))
        except SpecError as error:
            problems.extend(error.problems)
    settings.extend(Setting(path, value) for path, value in overrides.items())
    return settings, problems


def recorded_spec(file: Path) -> tuple[str, Mapping[str, Any]]:
    """The name and the content of the spec in a file of a run. Raises SpecError."""
    content = read_file(file)
    names = spec_names(content)
    if len(names) != 1:
        raise SpecError.of(str(file), "file", "must hold one spec, as the run wrote it")
    return names[0], content[names[0]]


def chosen_name(where: str, content: Mapping[str, Any], name: str | None) -> str:
    """`name`, or the name of the only spec in the content of a file. Raises
    SpecError."""
    names = spec_names(content)
    if name is not None and name in content:
        return name
    if name is None and len(names) == 1:
        return names[0]
    listed = "no spec {agent, env, meta}"
    if names:
        listed = ", ".join(names)
    if name is None:
        raise SpecError.of(where, "spec name", f"is missing; the file holds {listed}")
    nearest = nearest_name(name, names)
    hint = f"did you mean {nearest}?" if nearest else f"the file holds {listed}"
    raise SpecError.of(where, name, f"there is no spec of this name; {hint}")


def _spec_or_error(where: str, parsed: parsing.Parsed) -> Spec:
    if parsed.problems or parsed.spec is None:
        once = {str(problem): problem for problem in parsed.problems}
        raise SpecError(where, list(once.values()))
    return parsed.spec


def _warn(where: str, parsed: Sequence[parsing.Parsed]) -> None:
    """Logs one line per file and kind of warning, for all specs and keys."""
    renamed = [note for spec in parsed for note in spec.renamed]
    ignored = [note for spec in parsed for note in spec.legacy]
    unfit = [
        str(note)
        for spec in parsed
        for note in spec.of_search
        if note not in spec.problems
    ]
    suspicious = [
        note for spec in parsed if not spec.problems for note in spec.suspicious
    ]
    for message, notes in (
        ("%s: names of other libraries: %s", renamed),
        ("%s: keys without meaning here are ignored: %s", ignored),
        ("%s: a training ignores problems of search: %s", unfit[:MAX_PRINTED]),
        ("%s: suspicious setting: %s", suspicious),
    ):
        if notes:
            logger.warning(message, where, "; ".join(dict.fromkeys(notes)))
    for note in dict.fromkeys(note for spec in parsed for note in spec.adapted):
        logger.info("%s: %s", where, note)
