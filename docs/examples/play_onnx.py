"""Plays an environment by an exported policy: play_onnx.py policy.onnx CartPole-v1
[EPISODES [MASK]].

MASK is the place of the action mask, as in env.action_mask: info.action_mask. It needs
onnxruntime and gymnasium, neither torch nor SLM Lab.
"""

import sys

import gymnasium
import numpy as np
import onnxruntime
from gymnasium import spaces

if len(sys.argv) < 3:
    sys.exit(__doc__)
session = onnxruntime.InferenceSession(sys.argv[1])
env = gymnasium.make(sys.argv[2])
episodes, mask_place = [*sys.argv[3:], *["10", ""][len(sys.argv) - 3 :]]
asked = {given.name: given for given in session.get_inputs()}
outputs = [given.name for given in session.get_outputs()]
if "mask" in asked and not mask_place:
    sys.exit("this policy needs masks of actions: name their place as MASK")


def parts_of(value, name):
    """The innermost parts of dicts and tuples, by names such as "robot.pose"."""
    if not isinstance(value, dict | tuple):
        return {name: value}
    children = value.items() if isinstance(value, dict) else enumerate(value)
    parts = {}
    for key, child in children:
        parts |= parts_of(child, f"{name}.{key}".lstrip("."))
    return parts


def mask_at(place, obs, info):
    """The mask of actions, as the environment gives it."""
    value = {"info": info} if place.startswith("info.") else obs
    try:
        for key in place.split("."):
            value = value[int(key)] if isinstance(value, tuple) else value[key]
    except (LookupError, TypeError, ValueError):
        sys.exit(f"there is no mask at {place}")
    return value


def numbers_of(space, mask):
    """The numbers of a mask, in the order of the choices of an action."""
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return []
    if isinstance(space, spaces.Dict) and isinstance(mask, dict):
        pairs = [(part, mask[key]) for key, part in space.items() if key in mask]
    elif isinstance(space, spaces.Tuple) and len(mask) == len(space.spaces):
        pairs = zip(space.spaces, mask, strict=True)
    else:
        arrays = mask.values() if isinstance(mask, dict) else mask
        return np.concatenate([np.ravel(array) for array in arrays])
    return np.concatenate([numbers_of(part, own) for part, own in pairs])


def observed_in(obs, info):
    """All that the file may ask for, by the names of its inputs."""
    in_parts = isinstance(obs, dict | tuple)
    parts = parts_of(obs, "" if in_parts else "obs")
    observed = {f"obs.{name}": part for name, part in parts.items()} | parts
    if "mask" in asked:
        observed["mask"] = numbers_of(env.action_space, mask_at(mask_place, obs, info))
    if "obs" in asked and in_parts:
        observed["obs"] = spaces.flatten(env.observation_space, obs)
    return observed


def batch_of(value, given, before):
    """(1, ...) an input; stacked frames (1, L, ...) follow those `before`."""
    dtype = given.type.removeprefix("tensor(").removesuffix(")")
    value = np.asarray(value, {"float": "float32"}.get(dtype, dtype))[None]
    if value.ndim == len(given.shape):
        return value
    if before is None:
        return value[:, None].repeat(given.shape[1], axis=1)
    return np.concatenate([before[:, 1:], value[:, None]], axis=1)


def action_in(space, results, name):
    """The action for the environment."""
    if isinstance(space, spaces.Dict):
        parts = space.spaces.items()
        return {key: action_in(part, results, f"{name}.{key}") for key, part in parts}
    if isinstance(space, spaces.Tuple):
        parts = enumerate(space.spaces)
        return tuple(action_in(part, results, f"{name}.{key}") for key, part in parts)
    return results[name][0]


for episode in range(int(episodes)):
    obs, info = env.reset(seed=episode)
    inputs = {}
    results = {}
    total, done = 0.0, False
    while not done:
        observed = observed_in(obs, info)
        if "state" in asked:
            zeros = np.zeros(asked["state"].shape[1], np.float32)
            observed["state"] = results["next_state"][0] if results else zeros
        inputs = {
            name: batch_of(observed[name], given, inputs.get(name))
            for name, given in asked.items()
        }
        results = dict(zip(outputs, session.run(outputs, inputs), strict=True))
        action = action_in(env.action_space, results, "action")
        obs, reward, terminated, truncated, info = env.step(action)
        total, done = total + float(reward), terminated or truncated
    print(f"episode {episode + 1}: return {total:g}")
