"""Plays an environment by an exported policy: play_onnx.py policy.onnx CartPole-v1 [EPISODES].

It needs onnxruntime and gymnasium, neither torch nor SLM Lab.
"""

import sys

import gymnasium
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
env = gymnasium.make(sys.argv[2])
recurrent = [each for each in session.get_inputs() if each.name == "state"]

for episode in range(int(sys.argv[3]) if len(sys.argv) > 3 else 10):
    obs, _ = env.reset(seed=episode)
    state = [np.zeros((1, each.shape[1]), np.float32) for each in recurrent]
    total, done = 0.0, False
    while not done:
        inputs = {"obs": np.asarray(obs, env.observation_space.dtype)[None]}
        inputs |= {each.name: array for each, array in zip(recurrent, state, strict=True)}
        action, values, *state = session.run(None, inputs)
        obs, reward, terminated, truncated, _ = env.step(action[0])
        total, done = total + float(reward), terminated or truncated
    print(f"episode {episode + 1}: return {total:g}")
