"""The second pass of a spec check: what only the environment's own code can answer."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.error import DependencyNotInstalled

from slm_lab.core.errors import MissingExtraError, Problem, SpecError, UsageError
from slm_lab.core.registry import nearest_name
from slm_lab.env.lookup import find_env, known_warnings_ignored, require
from slm_lab.env.simulators.arguments import Arguments, arguments_of
from slm_lab.env.simulators.atari import JOINED, atari_problems, is_atari
from slm_lab.env.simulators.film import IMAGES, fix_of_mujoco, in_one_line
from slm_lab.env.vector.autoreset import choose_mode, vector_creator, why_not_native
from slm_lab.env.vector.envpool import THREAD_KEYS, is_pooled, pool_problems
from slm_lab.spec.schema.env import EnvSpec

OWN_WORDS = {"max_episode_steps": "max_t", "autoreset_mode": None, "num_envs": "num_envs"}
"""arguments of native vector environments that the lab sets, and the spec's word for them"""

USUAL_WORDS = {"max_steps": "max_t", **dict.fromkeys(("frame_stack", "num_stack"), JOINED)}
"""what other libraries call a key of every environment, and the spec's word for it"""

SHOWN_MODES = frozenset({"human", "rgb_array", "rgb_array_list"})
"""render modes that can be seen in a window: Gymnasium puts one around images"""


def check_env(spec: EnvSpec) -> list[Problem]:
    """What is wrong with `spec`, without constructing an environment; [] if nothing is.

    A simulator is imported only where the spec has keys for it. A family that is not installed
    is no fault of the spec: it is checked as far as that goes, and `make_env` says what to install.
    """
    try:
        entry = find_env(spec.name)
    except SpecError as error:
        return list(error.problems)
    except MissingExtraError:
        return []
    if is_pooled(spec):
        return _check_pooled(spec, entry)
    if spec.vectorization_mode == "native" and (reason := why_not_native(entry)) is not None:
        return [native_refused(reason)]
    return _check_kwargs(spec, entry)


def native_refused(reason: str) -> Problem:
    """That vectorization_mode cannot be "native", with the `reason` and what it can be."""
    allowed = f"{reason}; use sync, async or null"
    return Problem("env.vectorization_mode", allowed, "native", has_value=True)


def _check_pooled(spec: EnvSpec, entry: GymnasiumSpec) -> list[Problem]:
    try:
        arguments = None if is_atari(entry) else arguments_of(_single_creator(entry))
        accepted = None if arguments is None else _accepted(arguments, entry)
        problems = pool_problems(spec, entry, accepted)
    except SpecError as error:
        return list(error.problems)
    except (MissingExtraError, ImportError, DependencyNotInstalled):
        return []
    if problems or arguments is None:
        return problems
    return _wrong_types(spec, entry, arguments)


def _check_kwargs(spec: EnvSpec, entry: GymnasiumSpec) -> list[Problem]:
    mode = choose_mode(spec.vectorization_mode, spec.kwargs, entry)
    if is_atari(entry):
        return atari_problems(spec, entry, mode)
    if not spec.kwargs:
        return []
    try:
        creator = vector_creator(entry) if mode == "native" else _single_creator(entry)
    except (ImportError, DependencyNotInstalled):
        return []  # as for a missing extra
    arguments = arguments_of(creator)
    return _unknown_keys(spec, entry, arguments) + _wrong_types(spec, entry, arguments)


def _unknown_keys(spec: EnvSpec, entry: GymnasiumSpec, arguments: Arguments) -> list[Problem]:
    accepted = _accepted(arguments, entry)
    if accepted is None:
        return []
    if spec.backend == "envpool":
        accepted |= THREAD_KEYS
    return [
        Problem(f"env.{key}", _refusal(key, entry, accepted), value, has_value=True)
        for key, value in spec.kwargs.items()
        if key not in accepted
    ]


def _wrong_types(spec: EnvSpec, entry: GymnasiumSpec, arguments: Arguments) -> list[Problem]:
    """Values that the annotations of the environment rule out."""
    problems = []
    for key, value in spec.kwargs.items():
        argument = arguments.named.get(key)
        if argument is None or key in OWN_WORDS:
            continue
        registered = key in entry.kwargs and type(value) is type(entry.kwargs[key])
        reason = None if registered else argument.why_not(value)
        if reason is not None:
            problems.append(Problem(f"env.{key}", reason, value, has_value=True))
    return problems


def _accepted(arguments: Arguments, entry: GymnasiumSpec) -> set[str] | None:
    """The keys that a spec can have for `entry`, which takes `arguments`; None: any."""
    if arguments.open_ended:
        return None
    return (set(arguments.named) | set(entry.kwargs)) - set(OWN_WORDS)


def why_not_shown(spec: EnvSpec) -> str | None:
    """Why the environment can open no window (the render mode "human"); None: nothing is known.

    Raises as `find_env`.
    """
    return _why_not_drawn(spec, "human", SHOWN_MODES)


def why_not_filmed(spec: EnvSpec) -> str | None:
    """Why the environment gives no images (the render mode "rgb_array"); None: nothing is known.

    Raises as `find_env`.
    """
    return _why_not_drawn(spec, IMAGES, frozenset({IMAGES}))


def _why_not_drawn(spec: EnvSpec, wanted: str, modes_for_it: frozenset[str]) -> str | None:
    entry = find_env(spec.name)
    try:
        creator = _single_creator(entry)
        if is_atari(entry):
            require("cv2", "atari")
    except (ImportError, DependencyNotInstalled):
        return None  # as for a missing extra
    except MissingExtraError as error:
        return f"single games need OpenCV, and {error}"
    arguments = arguments_of(creator)
    if not arguments.open_ended and "render_mode" not in arguments.named:
        return "it takes no render_mode"
    metadata = getattr(creator, "metadata", None)  # a function has none
    if not isinstance(metadata, Mapping):
        return None
    modes = metadata.get("render_modes", ())
    if not modes_for_it.isdisjoint(modes):
        return None
    return f'it has no render mode "{wanted}"; it has {", ".join(map(str, modes)) or "none at all"}'


def _refusal(key: str, entry: GymnasiumSpec, accepted: set[str]) -> str:
    message = f"{entry.id} does not accept it"
    own = OWN_WORDS.get(key) or USUAL_WORDS.get(key)
    nearest = own or nearest_name(key, sorted(accepted))
    if nearest is not None:
        return f"{message}; did you mean {nearest}?"
    return f"{message}; it accepts {', '.join(sorted(accepted)) or 'no keys'}"


def _single_creator(entry: GymnasiumSpec) -> Callable[..., Any]:
    """What makes one of them. Raises ImportError or DependencyNotInstalled where something is not
    installed, UsageError where the code of the environment does not import for another reason."""
    target = entry.entry_point
    if not isinstance(target, str):
        assert target is not None
        return target
    module_name, _, attribute = target.partition(":")
    try:
        with known_warnings_ignored():
            creator: Callable[..., Any] = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, DependencyNotInstalled):
        raise
    except Exception as error:
        why = f"{in_one_line(error)}{fix_of_mujoco(error)}"
        raise UsageError(f"{entry.id} does not import: {why}") from error
    return creator
