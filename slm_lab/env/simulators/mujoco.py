"""MuJoCo: the exact state of Gymnasium's environments of version 5, and the log of warnings."""

import importlib
import logging
import sys
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from slm_lab.core.types import StateDict

logger = logging.getLogger(__name__)

OLD_MODEL = "'settotalmass' is deprecated"
"""A warning about HalfCheetah's model, which users cannot fix."""

KINEMATICS = ("xpos", "xipos")
"""Positions of bodies and of their centres of mass in the last simulated step. Ant and Humanoid
measure their velocity from them. Recomputed, they would be those after that step."""

CLASSES = (
    "ant_v5:AntEnv",
    "half_cheetah_v5:HalfCheetahEnv",
    "hopper_v5:HopperEnv",
    "humanoid_v5:HumanoidEnv",
    "humanoidstandup_v5:HumanoidStandupEnv",
    "inverted_double_pendulum_v5:InvertedDoublePendulumEnv",
    "inverted_pendulum_v5:InvertedPendulumEnv",
    "pusher_v5:PusherEnv",
    "reacher_v5:ReacherEnv",
    "swimmer_v5:SwimmerEnv",
    "walker2d_v5:Walker2dEnv",
)
"""Environments whose steps depend only on MuJoCo's integration state and `KINEMATICS`. The goals of
Pusher and Reacher are positions of bodies."""


def save_simulation(env: Any) -> StateDict:
    """The state that a step depends on; about 2 kB for Humanoid. It is `mjSTATE_INTEGRATION` (time,
    positions, velocities, warm start, controls, applied forces, …) and `KINEMATICS`."""
    import mujoco

    integration = np.empty(mujoco.mj_stateSize(env.model, _integration()))
    mujoco.mj_getState(env.model, env.data, integration, _integration())
    kinematics = {name: getattr(env.data, name).copy() for name in KINEMATICS}
    return {"integration": integration, **kinematics}


def load_simulation(env: Any, state: StateDict) -> None:
    """Restores the result of `save_simulation`. The next step recomputes everything else."""
    import mujoco

    mujoco.mj_setState(env.model, env.data, state["integration"], _integration())
    for name in KINEMATICS:
        getattr(env.data, name)[:] = state[name]


def is_all_simulation(env: Any) -> bool:
    """Whether the model has no other state. The model of an `xml_file` may have plugins or sleeping
    bodies, which have state."""
    import mujoco

    sleeps = int(mujoco.mjtEnableBit.mjENBL_SLEEP)
    return env.model.nplugin == 0 and not env.model.opt.enableflags & sleeps


def _integration() -> int:
    import mujoco

    return int(mujoco.mjtState.mjSTATE_INTEGRATION)


def log_mujoco_warnings(entry: GymnasiumSpec) -> None:
    """Sends MuJoCo's warnings to the log if `entry` uses MuJoCo. By default MuJoCo prints them and
    writes them to MUJOCO_LOG.TXT in the working directory. A process has one warning function; an
    existing one is kept."""
    if isinstance(entry.entry_point, str):
        importlib.import_module(entry.entry_point.partition(":")[0])
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log)


def _log(message: str) -> None:
    if OLD_MODEL not in message:
        logger.warning("MuJoCo: %s", message)
