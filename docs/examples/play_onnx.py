"""Plays an environment by an exported policy: play_onnx.py policy.onnx CartPole-v1
[EPISODES].

It needs onnxruntime and gymnasium, neither torch nor SLM Lab.
"""

import sys

import gymnasium
import numpy as np
import onnxruntime
from gymnasium import spaces, wrappers

if len(sys.argv) < 3:
    sys.exit(__doc__)
session = onnxruntime.InferenceSession(sys.argv[1])
given, *recurrent = session.get_inputs()
env = gymnasium.make(sys.argv[2])
if isinstance(env.observation_space, spaces.Dict | spaces.Tuple):
    env = wrappers.FlattenObservation(env)
if len(given.shape) > len(env.observation_space.shape) + 1:
    env = wrappers.FrameStackObservation(env, given.shape[1])  # as env.frame_op
dtype = "float32" if given.type == "tensor(float)" else env.observation_space.dtype

for episode in range(int(sys.argv[3]) if len(sys.argv) > 3 else 10):
    obs, _ = env.reset(seed=episode)
    state = [np.zeros((1, each.shape[1]), np.float32) for each in recurrent]
    total, done = 0.0, False
    while not done:
        inputs = {"obs": np.asarray(obs, dtype)[None]}
        inputs |= {
            each.name: array for each, array in zip(recurrent, state, strict=True)
        }
        action, values, *state = session.run(None, inputs)
        obs, reward, terminated, truncated, _ = env.step(action[0])
        total, done = total + float(reward), terminated or truncated
    print(f"episode {episode + 1}: return {total:g}")
