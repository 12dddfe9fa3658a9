"""Exact state of Gymnasium's MuJoCo environments, version 5."""

from typing import Any

import numpy as np

from slm_lab.core.types import StateDict

KINEMATICS = ("xpos", "xipos")
"""Where bodies and their centres of mass were in the last simulated step. Ant and Humanoid measure
their velocity from there, and computing it anew would move it on to the state after that step."""

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
"""Whose steps read nothing of an earlier step but MuJoCo's integration state and `KINEMATICS`;
the goals of Pusher and Reacher are positions of bodies."""


def save_simulation(env: Any) -> StateDict:
    """What MuJoCo integrates from (`mjSTATE_INTEGRATION`: time, positions, velocities, warm start,
    controls, applied forces, …) and what a step reads besides: about 2 kB for Humanoid."""
    import mujoco

    integration = np.empty(mujoco.mj_stateSize(env.model, _integration()))
    mujoco.mj_getState(env.model, env.data, integration, _integration())
    kinematics = {name: getattr(env.data, name).copy() for name in KINEMATICS}
    return {"integration": integration, **kinematics}


def load_simulation(env: Any, state: StateDict) -> None:
    """Restores `save_simulation`. Everything else is computed anew in the next step."""
    import mujoco

    mujoco.mj_setState(env.model, env.data, state["integration"], _integration())
    for name in KINEMATICS:
        getattr(env.data, name)[:] = state[name]


def is_all_simulation(env: Any) -> bool:
    """Whether the model keeps nothing elsewhere, as plugins and sleeping bodies do, which a model
    of one's own (`xml_file`) can have."""
    import mujoco

    sleeps = int(mujoco.mjtEnableBit.mjENBL_SLEEP)
    return env.model.nplugin == 0 and not env.model.opt.enableflags & sleeps


def _integration() -> int:
    import mujoco

    return int(mujoco.mjtState.mjSTATE_INTEGRATION)
