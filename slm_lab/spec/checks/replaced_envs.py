"""Successors of environments whose simulators no longer exist.

The schema accepts the old ids, because an installed package may still register them. These
functions give the message for an id that Gymnasium does not know.
"""

import re

MUJOCO = (
    "Ant|HalfCheetah|Hopper|HumanoidStandup|Humanoid|InvertedDoublePendulum|InvertedPendulum|"
    "Pusher|Reacher|Swimmer|Walker2d"
)
SUCCESSORS = (
    (re.compile(rf"Roboschool({MUJOCO})-v\d+"), r"\1-v5"),
    (re.compile(rf"({MUJOCO})-v[0-4]"), r"\1-v5"),
    (re.compile(r"(\w+?)(?:NoFrameskip|Deterministic)-v\d+"), r"ALE/\1-v5"),
    (re.compile(r"Pendulum-v0"), "Pendulum-v1"),
    (re.compile(r"BipedalWalker(Hardcore)?-v[0-2]"), r"BipedalWalker\1-v3"),
    (re.compile(r"LunarLander-v[0-2]"), "LunarLander-v3"),
    (re.compile(r"LunarLanderContinuous-v\d+"), 'LunarLander-v3 with "continuous": true'),
)


def successor(env_id: str) -> str | None:
    """The successor of an environment; None if it has none."""
    for pattern, replacement in SUCCESSORS:
        match = pattern.fullmatch(env_id)
        if match:
            return match.expand(replacement)
    return None


def replaced_message(env_id: str) -> str | None:
    """The message for a replaced environment; None for an id of no replaced family."""
    replacement = successor(env_id)
    if replacement is not None:
        return f"its simulator is gone; use {replacement}"
    if env_id.startswith("Roboschool"):
        return "its simulator is gone, and this environment has no successor"
    return None
