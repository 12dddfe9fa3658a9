"""The log of MuJoCo's warnings."""

import importlib
import logging
import sys

from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

logger = logging.getLogger(__name__)

OLD_MODEL = "'settotalmass' is deprecated"
"""A warning about HalfCheetah's model, which users cannot fix."""


def log_mujoco_warnings(entry: GymnasiumSpec) -> None:
    """Sends MuJoCo's warnings to the log if `entry` uses it, instead of printing them
    and writing MUJOCO_LOG.TXT in the working directory. An existing warning function of
    the process is kept."""
    if isinstance(entry.entry_point, str):
        importlib.import_module(entry.entry_point.partition(":")[0])
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None and mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log)


def _log(message: str) -> None:
    if OLD_MODEL not in message:
        logger.warning("MuJoCo: %s", message)
