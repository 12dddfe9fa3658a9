"""The second pass of a spec check, which needs the environment's code."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.error import DependencyNotInstalled

from slm_lab.core.errors import MissingExtraError, Problem, SpecError, UsageError
from slm_lab.core.registry import load_target
from slm_lab.env.changing import ArgumentSchedule
from slm_lab.env.extras import known_warnings_ignored, missing
from slm_lab.env.foreign import OWN_OF_NATIVE, vector_creator
from slm_lab.env.lookup import find_env, in_families
from slm_lab.env.pettingzoo import agents_problems
from slm_lab.env.pool_names import is_only_in_pool, is_pooled
from slm_lab.env.simulators.atari import JOINED, atari_problems, is_atari
from slm_lab.env.simulators.batched import batch_problems, is_batched
from slm_lab.env.simulators.envpool import THREAD_KEYS, pool_arguments, pool_problems
from slm_lab.env.simulators.film import IMAGE_MODE, exception_message, fix_of_mujoco
from slm_lab.env.vector.autoreset import choose_mode, native_fault
from slm_lab.env.wrappers import Argument, Arguments, arguments_of, wrapper_problems
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.schedule import is_schedule

OWN_NAMES = {
    **dict.fromkeys(("max_episode_steps", "max_steps"), "max_t"),
    **dict.fromkeys(("frame_stack", "num_stack"), JOINED),
}
"""Keys as other libraries call them, and the spec's key for them."""

KEYS_OF_THE_LAB = {key: f"env.{key}, beside kwargs" for key in EnvSpec.model_fields}
"""Keys that may stand in `kwargs` by mistake."""

DRAWN_BY_PYGAME = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
"""The environments of Gymnasium itself, which draw with pygame and step without it."""

SHOWN_MODES = frozenset({"human", "rgb_array", "rgb_array_list"})
"""Render modes that a window can show: Gymnasium opens one for images."""


def check_env(spec: EnvSpec) -> list[Problem]:
    """The problems of `spec`, found without constructing an environment. Imports a
    simulator only if the spec has keys for it. A family that is not installed is no
    problem of the spec: `make_env` reports it."""
    try:
        entry = find_env(spec)
    except SpecError as error:
        return list(error.problems)
    except MissingExtraError:
        return []
    if spec.has_agents and agents_problems(spec):
        return agents_problems(spec)
    if is_only_in_pool(entry) or is_pooled(spec):
        return _check_pooled(spec, entry)
    if (
        spec.vectorization_mode == "native"
        and (reason := native_fault(spec, entry)) is not None
    ):
        return [native_refused(reason)]
    return _check_kwargs(spec, entry) + wrapper_problems(spec)


def native_refused(reason: str) -> Problem:
    """The problem of vectorization_mode "native" that the `reason` explains."""
    return Problem(
        "env.vectorization_mode", f"{reason}; use sync, async or null", "native"
    )


def _check_of_pool(spec: EnvSpec, entry: GymnasiumSpec) -> list[Problem]:
    """The problems with an environment that envpool alone has."""
    problems: list[Problem] = []
    if spec.backend == "torch":
        message = f'envpool steps {spec.name}; use "envpool", or leave it out'
        problems.append(Problem("env.backend", message, spec.backend))
    if spec.reset_options:
        message = "envpool takes no options of a reset; remove it"
        options = dict(spec.reset_options)
        problems.append(Problem("env.reset_options", message, options))
    if not spec.arguments and spec.index_key is None:
        return problems
    try:
        arguments = pool_arguments(entry)
    except (MissingExtraError, ImportError, RuntimeError):
        # RuntimeError: the files of the game are arguments, as of VizdoomCustom-v1
        return problems
    problems += _argument_problems(arguments, spec, entry)
    return problems + _index_problems(spec, entry, arguments)


def _check_pooled(spec: EnvSpec, entry: GymnasiumSpec) -> list[Problem]:
    if is_only_in_pool(entry):
        return _check_of_pool(spec, entry) + wrapper_problems(spec)
    try:
        if is_atari(entry):
            return pool_problems(spec, entry, None)
        arguments = _arguments(_single_creator(entry), spec, entry)
        accepted = None
        if not arguments.open_ended:
            accepted = set(arguments.named)
        problems = pool_problems(spec, entry, accepted)
    except SpecError as error:
        return list(error.problems)
    except (MissingExtraError, ImportError, DependencyNotInstalled):
        return []
    return problems or _argument_problems(arguments, spec, entry)


def _check_kwargs(spec: EnvSpec, entry: GymnasiumSpec) -> list[Problem]:
    mode = choose_mode(spec, entry)
    if is_batched(spec):
        refused = batch_problems(spec, entry)
        if refused:
            return refused
        mode = "sync"  # its arguments are a single environment's
    if is_atari(entry):
        return [
            *_game_schedules(spec),
            *atari_problems(spec, entry, mode),
            *_index_problems(spec, entry, None),
        ]
    if not spec.arguments and spec.index_key is None:
        return []
    try:
        creator = vector_creator(entry) if mode == "native" else _single_creator(entry)
    except (ImportError, DependencyNotInstalled):
        return []  # as for a missing extra
    arguments = _arguments(creator, spec, entry)
    if mode == "native":
        for key in OWN_OF_NATIVE:
            arguments.named.pop(key, None)
    problems = _argument_problems(arguments, spec, entry)
    return problems + _index_problems(spec, entry, arguments)


def _game_schedules(spec: EnvSpec) -> Iterator[Problem]:
    for key in spec.schedules:
        message = "an argument of an Atari game cannot change while an agent trains"
        yield Problem(f"env.{key}", f"{message}; write a number")


def argument_schedules(
    spec: EnvSpec, entry: GymnasiumSpec
) -> dict[str, ArgumentSchedule]:
    """The schedules of the arguments that `entry` takes, for a spec without
    problems."""
    schedules = spec.schedules
    if not schedules:
        return {}
    if is_only_in_pool(entry):
        arguments = pool_arguments(entry)
    else:
        arguments = _arguments(_single_creator(entry), spec, entry)
    return {
        key: ArgumentSchedule(schedule.build(), arguments.is_whole(key, schedule))
        for key, schedule in schedules.items()
    }


def _argument_problems(
    arguments: Arguments, spec: EnvSpec, entry: GymnasiumSpec
) -> list[Problem]:
    extra = spec.model_extra or {}
    other_names = {**OWN_NAMES, **KEYS_OF_THE_LAB}
    return [
        *arguments.problems(entry.id, "env", _plain(arguments, extra), OWN_NAMES),
        *arguments.problems(
            entry.id, "env.kwargs", _plain(arguments, spec.kwargs), other_names
        ),
        *_schedule_problems(arguments, entry, "env", extra),
        *_schedule_problems(arguments, entry, "env.kwargs", spec.kwargs),
    ]


def _plain(arguments: Arguments, values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without a schedule, and those that are unknown."""
    return {
        key: value
        for key, value in values.items()
        if not is_schedule(value) or not arguments.accepts(key)
    }


def _schedule_problems(
    arguments: Arguments, entry: GymnasiumSpec, path: str, values: Mapping[str, Any]
) -> Iterator[Problem]:
    """The problems of known arguments with a schedule: of the argument itself, or else
    at the end where they are."""
    for key, schedule in values.items():
        if not is_schedule(schedule) or not arguments.accepts(key):
            continue
        if not arguments.takes_numbers(key):
            message = "takes no numbers, so it cannot change while an agent trains"
            yield Problem(f"{path}.{key}", f"{message}; write a value", schedule)
            continue
        for end in ("start_val", "end_val"):
            number = schedule.get(end)
            if number is None:
                continue
            if float(number).is_integer():
                number = int(number)
            for problem in arguments.problems(entry.id, path, {key: number}, {}):
                yield Problem(f"{problem.path}.{end}", problem.message, number)


def _index_problems(
    spec: EnvSpec, entry: GymnasiumSpec, arguments: Arguments | None
) -> list[Problem]:
    """The problem of an argument for copies' numbers that the environment does not
    accept."""
    key = spec.index_key
    if key is None:
        return []
    numbered = arguments
    if numbered is None:
        numbered = Arguments({}, False)
    refused = numbered.problems(entry.id, "env", {key: spec.first_index}, {})
    return [Problem("env.index_key", problem.message, key) for problem in refused]


def _arguments(
    creator: Callable[..., Any], spec: EnvSpec, entry: GymnasiumSpec
) -> Arguments:
    """The arguments that `entry` takes: of its class or function, and of its
    registration."""
    declared = arguments_of(creator)
    of_a_pool = () if spec.backend != "envpool" else THREAD_KEYS
    named = dict.fromkeys(of_a_pool, Argument(Any)) | declared.named
    for key, value in entry.kwargs.items():
        argument = named.get(key, Argument(Any))
        named[key] = argument._replace(examples=(*argument.examples, value))
    return Arguments(named, declared.open_ended)


def display_fault(spec: EnvSpec) -> str | None:
    """Why the environment cannot open a window ("human"), or None. Raises as
    `find_env`."""
    return _render_fault(spec, "human", SHOWN_MODES)


def film_fault(spec: EnvSpec) -> str | None:
    """Why the environment has no images ("rgb_array"), or None. Raises as
    `find_env`."""
    return _render_fault(spec, IMAGE_MODE, frozenset({IMAGE_MODE}))


def _render_fault(
    spec: EnvSpec, wanted: str, modes_for_it: frozenset[str]
) -> str | None:
    entry = find_env(spec)
    try:
        creator = _single_creator(entry)
    except (ImportError, DependencyNotInstalled):
        return None  # as for a missing extra
    lacking = _missing_for_images(entry)
    if lacking is not None:
        return lacking
    arguments = arguments_of(creator)
    if not arguments.open_ended and "render_mode" not in arguments.named:
        return "it takes no render_mode"
    metadata = getattr(creator, "metadata", None)  # a function has none
    if not isinstance(metadata, Mapping):
        return None
    modes = metadata.get("render_modes", ())
    if not modes_for_it.isdisjoint(modes):
        return None
    return (
        f'it has no render mode "{wanted}"; it has '
        f"{', '.join(map(str, modes)) or 'none at all'}"
    )


def _missing_for_images(entry: GymnasiumSpec) -> str | None:
    """The line that names the extra which draws the environment, if it is missing."""
    if is_atari(entry):
        fault = missing("cv2", "atari")
        return None if fault is None else f"single games need OpenCV, and {fault}"
    if in_families(entry, *DRAWN_BY_PYGAME):
        return missing("pygame", "video")
    return None


def _single_creator(entry: GymnasiumSpec) -> Callable[..., Any]:
    """The class or function of a single environment. Raises ImportError or
    DependencyNotInstalled if a package is missing, and UsageError if its module does
    not import for another reason."""
    target: Any = entry.entry_point
    try:
        with known_warnings_ignored():
            creator: Callable[..., Any] = (
                load_target(target) if isinstance(target, str) else target
            )
    except (ImportError, DependencyNotInstalled):
        raise
    except Exception as error:
        why = f"{exception_message(error)}{fix_of_mujoco(error)}"
        raise UsageError(f"{entry.id} does not import: {why}") from error
    return creator
