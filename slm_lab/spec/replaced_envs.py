"""Environments of old files whose simulators are gone, and what took their place.

The schema accepts them, because an installed package may still register them. Whoever finds that
Gymnasium does not know an id asks here for the message.
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
    """The environment to use in place of one that is gone; None where nothing took its place."""
    for pattern, replacement in SUCCESSORS:
        match = pattern.fullmatch(env_id)
        if match:
            return match.expand(replacement)
    return None


def replaced_message(env_id: str) -> str | None:
    """What to tell a user whose environment is gone; None for an id of no replaced family."""
    named = successor(env_id)
    if named is not None:
        return f"its simulator is gone; use {named}"
    if env_id.startswith("Roboschool"):
        return "its simulator is gone, and nothing took the place of this environment"
    return None
