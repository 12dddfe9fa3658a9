"""Where MuJoCo's warnings go."""

import importlib
import logging
import sys

from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

logger = logging.getLogger(__name__)

OLD_MODEL = "'settotalmass' is deprecated"
"""of HalfCheetah's model, about which no user can do anything"""


def log_mujoco_warnings(entry: GymnasiumSpec) -> None:
    """Has MuJoCo, if `entry` is simulated with it, tell its warnings to the log.

    Else it prints them and writes them to a file MUJOCO_LOG.TXT in the folder that one happens to
    be in. It has one place in a process for a function that it warns with; one that is there
    already stays.
    """
    if isinstance(entry.entry_point, str):
        importlib.import_module(entry.entry_point.partition(":")[0])
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log)


def _log(message: str) -> None:
    if OLD_MODEL not in message:
        logger.warning("MuJoCo: %s", message)
