"""The environments that envpool alone has, by their names in a spec. These are
"envpool:ID", "playground/TASK", and any id of envpool with the backend "envpool"."""

import ctypes
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from slm_lab.core.errors import SpecError
from slm_lab.core.plugins import ENVPOOL, PLAYGROUND
from slm_lab.core.registry import nearest_name
from slm_lab.env.extras import import_extra
from slm_lab.spec.schema.env import EnvSpec

POOL_CREATOR = "slm_lab.env.simulators.envpool:PooledEnv"
"""The entry point of environments that envpool alone has."""

COMPARED = "gymnasium.envs."
"""The entry points of environments that envpool reproduces."""

PLAYGROUND_ID = "MuJoCoPlayground/{}-v1"
"""The id in envpool of a task of MuJoCo Playground that is not DeepMind Control's."""

CONTROL_SUITE = {
    "AcrobotSwingup": "AcrobotSwingup-v1",
    "AcrobotSwingupSparse": "AcrobotSwingupSparse-v1",
    "BallInCup": "BallInCupCatch-v1",
    "CartpoleBalance": "CartpoleBalance-v1",
    "CartpoleBalanceSparse": "CartpoleBalanceSparse-v1",
    "CartpoleSwingup": "CartpoleSwingup-v1",
    "CartpoleSwingupSparse": "CartpoleSwingupSparse-v1",
    "CheetahRun": "CheetahRun-v1",
    "FingerSpin": "FingerSpin-v1",
    "FingerTurnEasy": "FingerTurnEasy-v1",
    "FingerTurnHard": "FingerTurnHard-v1",
    "FishSwim": "FishSwim-v1",
    "HopperHop": "HopperHop-v1",
    "HopperStand": "HopperStand-v1",
    "HumanoidRun": "HumanoidRun-v1",
    "HumanoidStand": "HumanoidStand-v1",
    "HumanoidWalk": "HumanoidWalk-v1",
    "PendulumSwingup": "PendulumSwingup-v1",
    "PointMass": "PointMassEasy-v1",
    "ReacherEasy": "ReacherEasy-v1",
    "ReacherHard": "ReacherHard-v1",
    "SwimmerSwimmer6": "SwimmerSwimmer6-v1",
    "WalkerRun": "WalkerRun-v1",
    "WalkerStand": "WalkerStand-v1",
    "WalkerWalk": "WalkerWalk-v1",
}
"""Tasks of MuJoCo Playground that are DeepMind Control's, and their ids in envpool."""


MUJOCO = "envpool.mujoco."
"""The beginning of the modules of envpool with MuJoCo in them."""

OPENGL = ("libOpenGL.so.0", "libEGL.so.1")
"""The system's libraries by which MuJoCo draws without a screen."""

OF_MANY = ("Cig-v1", "MultiDuel-v1")
"""Games of Doom that wait for other players: they hang or end the process."""

LIKENESS = 0.8
"""How similar an id is, 0 to 1, to one that it probably misspells."""


def is_pooled(spec: EnvSpec) -> bool:
    """Whether envpool steps the environments of `spec` together. Those that it alone
    has are also made one by one: for keys that need it, or in another mode."""
    if spec.vectorization_mode not in (None, "native"):
        return False
    if spec.backend == "envpool":
        return True
    is_alone = spec.single_only is not None or "render_mode" in spec.arguments
    return names_envpool(spec) and not is_alone


def names_envpool(spec: EnvSpec) -> bool:
    """Whether `spec` asks for environments of envpool."""
    is_named = spec.name.startswith((ENVPOOL, PLAYGROUND))
    return is_named or spec.backend == "envpool"


def is_only_in_pool(entry: GymnasiumSpec) -> bool:
    """Whether envpool alone has the environment."""
    return entry.entry_point == POOL_CREATOR


def pool_entry(spec: EnvSpec) -> GymnasiumSpec | None:
    """The entry of an environment that envpool alone has; None if the name of `spec` is
    looked up elsewhere. Imports no simulator. Raises MissingExtraError without envpool,
    SpecError for a name that it does not have."""
    name = spec.name
    if name.startswith(ENVPOOL):
        return _entry(spec, _known(name, name.removeprefix(ENVPOOL)))
    if name.startswith(PLAYGROUND):
        return _entry(spec, _known(name, playground_id(name)))
    if spec.backend != "envpool" or _is_gymnasiums(name):
        return None
    if name in import_envpool().list_all_envs():
        return _entry(spec, name)
    return None


def playground_id(name: str) -> str:
    """The id in envpool of "playground/TASK", which need not exist."""
    task = name.removeprefix(PLAYGROUND)
    return CONTROL_SUITE.get(task) or PLAYGROUND_ID.format(task)


def import_envpool() -> Any:
    """The module envpool. Raises MissingExtraError as `import_extra`."""
    opengl_fault()
    return import_extra("envpool", "envpool")


@cache
def opengl_fault() -> str | None:
    """Why MuJoCo would end the process when envpool draws it; None if it would not.
    MuJoCo finds OpenGL only if the system's libraries were loaded before its module.
    envpool brings libraries of its own under other names. So the first call loads
    them."""
    if any(name.startswith(MUJOCO) for name in sys.modules):
        return "envpool was imported before slm_lab; import slm_lab first"
    try:
        for library in OPENGL:
            ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return (
            f"envpool draws MuJoCo by EGL, and {error}; install libegl1 and libopengl0 "
            "(Debian, Ubuntu)"
        )
    return None


def nearest_of_pool(env_id: str) -> str | None:
    """The name "envpool:ID" of the id that `env_id` is, or probably misspells; None if
    there is none. Raises MissingExtraError as `import_extra`."""
    nearest = nearest_name(env_id, import_envpool().list_all_envs(), LIKENESS)
    if nearest is None:
        return None
    return f"{ENVPOOL}{nearest}"


def _is_gymnasiums(name: str) -> bool:
    """Whether Gymnasium itself has the environment, and code for it."""
    entry = gymnasium.registry.get(name)
    if entry is None or not isinstance(entry.entry_point, str):
        return False
    return entry.entry_point.startswith(COMPARED)


def _known(name: str, task: str) -> str:
    """The `task`, which is an id of envpool. Raises SpecError for another one."""
    if task in import_envpool().list_all_envs():
        return task
    if name.startswith(PLAYGROUND):
        nearest = nearest_name(name, [*playground_names()], LIKENESS)
    else:
        nearest = nearest_of_pool(task)
    hint = ""
    if nearest is not None:
        hint = f"; did you mean {nearest}?"
    message = f"envpool has no such environment{hint}"
    raise SpecError.of("env", "env.name", message, name)


def playground_names() -> Iterator[str]:
    """The names "playground/TASK" of all tasks. Raises MissingExtraError as
    `import_extra`."""
    before, after = PLAYGROUND_ID.split("{}")
    for task in CONTROL_SUITE:
        yield f"{PLAYGROUND}{task}"
    for env_id in import_envpool().list_all_envs():
        if env_id.startswith(before):
            yield f"{PLAYGROUND}{env_id.removeprefix(before).removesuffix(after)}"


def _entry(spec: EnvSpec, task: str) -> GymnasiumSpec:
    """The entry of `task` under the name of `spec`, with its step limit. Raises
    SpecError for a game that waits for other players."""
    if task in OF_MANY:
        message = "it waits for other players, and hangs or ends the process"
        raise SpecError.of("env", "env.name", message, spec.name)
    arguments = import_envpool().registration.registry.specs[task][2]
    limit = spec.max_t or arguments.get("max_episode_steps") or None
    kwargs: dict[str, Any] = {"task": task}
    if spec.max_t is not None:
        kwargs["max_episode_steps"] = spec.max_t
    return GymnasiumSpec(
        id=spec.name,
        entry_point=POOL_CREATOR,
        max_episode_steps=limit,
        kwargs=kwargs,
    )
