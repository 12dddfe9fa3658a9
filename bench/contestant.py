"""Runs one case in one library and prints its training frames per second as JSON.

For the lab it adds the shares of the time by part of the loop. `lab_graph` replays its
gradient steps as CUDA graphs. `stepping` is the lab's environments alone.

python -m bench.contestant {lab|lab_graph|sb3|floor|stepping} CASE [--frames N]
[--device cuda]
"""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from bench.cases import (
    CASES,
    A2CCase,
    AtariPPOCase,
    Case,
    DQNCase,
    MujocoPPOCase,
    OffPolicyCase,
    OnPolicyCase,
    PPOCase,
    QRDQNCase,
    SACCase,
    TD3Case,
    TQCCase,
)

STEPPING_SECONDS = 4.0
STEPS_AT_ONCE = 100


def lab_speed(name: str, case: Case) -> float:
    """Frames per second of a Session, rows and checkpoints included."""
    return lab_run(name, case)[0]


def lab_run(name: str, case: Case) -> tuple[float, dict[str, float]]:
    """`lab_speed`, and the share of the time of each part of the loop."""
    from slm_lab.core.process import keep_freed_memory
    from slm_lab.parallel.fork_server import CONTEXT
    from slm_lab.session.build import set_up_torch
    from slm_lab.session.seeding import session_seeds
    from slm_lab.session.session import Session
    from slm_lab.session.status_board import LOOP_PARTS, StatusBoard
    from slm_lab.spec.load import parse_spec
    from slm_lab.storage.run_dir import RunDir

    spec = parse_spec(name, case.spec())
    with tempfile.TemporaryDirectory() as folder:
        run_dir = RunDir(Path(folder), name)
        for part in ("info", "model"):
            (run_dir.root / part).mkdir()
        keep_freed_memory()  # as a Session's own process does
        set_up_torch(1)
        status_board = StatusBoard.allocate(CONTEXT, 1)
        session = Session(
            spec, 0, session_seeds(0, 0, 0), run_dir.session(0, 0), status_board
        )
        began = time.perf_counter()
        result = session.run()
        seconds = time.perf_counter() - began
        session.close()
    shares = dict(
        zip(LOOP_PARTS, status_board.loop["part_seconds"][0] / seconds, strict=True)
    )
    return result.frame / seconds, shares


def sb3_speed(name: str, case: Case) -> float:
    """Frames per second of Stable-Baselines3's `learn`."""
    import torch

    torch.set_num_threads(1)
    model = sb3_model(case)
    began = time.perf_counter()
    model.learn(case.frames)
    return model.num_timesteps / (time.perf_counter() - began)


def sb3_model(case: Case) -> Any:
    """The same work in Stable-Baselines3."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    kind, arguments = SB3[type(case)](case)
    common = {
        "learning_rate": case.lr,
        "gamma": case.gamma,
        "device": case.device,
        "seed": 0,
    }
    if isinstance(case, AtariPPOCase):
        return kind("CnnPolicy", sb3_atari(case), **common, **arguments)
    # its default lets LunarLander simulate particles for pictures
    plain = {"render_mode": None}
    env = make_vec_env(case.env, case.num_envs, seed=0, env_kwargs=plain)
    if isinstance(case, MujocoPPOCase):
        env = VecNormalize(env, gamma=case.gamma)
    return kind("MlpPolicy", env, **common, **arguments)


def sb3_atari(case: AtariPPOCase) -> Any:
    """A game with sticky actions, four frames per action and four of them in an
    observation."""
    import ale_py
    import gymnasium
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gymnasium.register_envs(ale_py)
    plain = {"frameskip": 1, "repeat_action_probability": 0.25}
    return VecFrameStack(
        make_atari_env(case.env, case.num_envs, seed=0, env_kwargs=plain), 4
    )


def sb3_on_policy(case: OnPolicyCase) -> dict[str, Any]:
    """The arguments that A2C and PPO share."""
    hidden = list(case.hidden)
    return {
        "n_steps": case.horizon,
        "gae_lambda": case.gae_lambda,
        "ent_coef": case.entropy_coef,
        "vf_coef": case.value_coef,
        "max_grad_norm": case.max_grad_norm,
        "policy_kwargs": {
            "net_arch": {"pi": hidden, "vf": hidden},
            "optimizer_kwargs": {"eps": 1e-5},
        },
    }


def sb3_a2c(case: A2CCase) -> tuple[Any, dict[str, Any]]:
    """A2C with Adam."""
    from stable_baselines3 import A2C

    return A2C, {"use_rms_prop": False, **sb3_on_policy(case)}


def sb3_ppo(case: PPOCase) -> tuple[Any, dict[str, Any]]:
    """PPO."""
    from stable_baselines3 import PPO

    own = {
        "batch_size": case.minibatch,
        "n_epochs": case.epochs,
        "clip_range": case.clip_eps,
    }
    return PPO, {**own, **sb3_on_policy(case)}


def sb3_atari_ppo(case: AtariPPOCase) -> tuple[Any, dict[str, Any]]:
    """PPO with the network that is SB3's own for images."""
    kind, arguments = sb3_ppo(case)
    return kind, {**arguments, "policy_kwargs": {"optimizer_kwargs": {"eps": 1e-5}}}


def sb3_off_policy(case: OffPolicyCase) -> dict[str, Any]:
    """The arguments that all algorithms with replay share."""
    return {
        "buffer_size": case.buffer,
        "learning_starts": case.start,
        "batch_size": case.batch,
        "train_freq": max(case.frequency // case.num_envs, 1),  # it counts vector steps
        "gradient_steps": 1,
        "policy_kwargs": {"net_arch": list(case.hidden)},
    }


def sb3_dqn(case: DQNCase) -> tuple[Any, dict[str, Any]]:
    """DQN."""
    from stable_baselines3 import DQN

    own = {
        "tau": 1.0,
        "target_update_interval": case.target_interval,
        "max_grad_norm": case.max_grad_norm,
        "exploration_fraction": case.exploration_frames / case.frames,
        "exploration_final_eps": case.last_epsilon,
    }
    return DQN, {**own, **sb3_off_policy(case)}


def sb3_qrdqn(case: QRDQNCase) -> tuple[Any, dict[str, Any]]:
    """QR-DQN of the contrib package. Its optimizer gets torch's ε."""
    from sb3_contrib import QRDQN

    _, arguments = sb3_dqn(case)
    policy = {
        **arguments["policy_kwargs"],
        "n_quantiles": case.quantiles,
        "optimizer_kwargs": {"eps": 1e-8},
    }
    return QRDQN, {**arguments, "policy_kwargs": policy}


def sb3_td3(case: TD3Case) -> tuple[Any, dict[str, Any]]:
    """TD3, with normal noise on actions."""
    import gymnasium
    from stable_baselines3 import TD3
    from stable_baselines3.common.noise import NormalActionNoise

    with gymnasium.make(case.env) as env:
        assert env.action_space.shape is not None
        mean = np.zeros(env.action_space.shape)
    own = {
        "tau": case.tau,
        "policy_delay": case.delay,
        "target_policy_noise": case.target_noise,
        "target_noise_clip": case.target_noise_clip,
        "action_noise": NormalActionNoise(mean, np.full_like(mean, case.noise)),
    }
    return TD3, {**own, **sb3_off_policy(case)}


def sb3_sac(case: SACCase) -> tuple[Any, dict[str, Any]]:
    """SAC."""
    from stable_baselines3 import SAC

    return SAC, {"tau": case.tau, **sb3_off_policy(case)}


def sb3_tqc(case: TQCCase) -> tuple[Any, dict[str, Any]]:
    """TQC of the contrib package."""
    from sb3_contrib import TQC

    _, arguments = sb3_sac(case)
    policy = {
        **arguments["policy_kwargs"],
        "n_critics": case.critics,
        "n_quantiles": case.quantiles,
    }
    own = {"policy_kwargs": policy, "top_quantiles_to_drop_per_net": case.dropped}
    return TQC, {**arguments, **own}


SB3: dict[type[Case], Callable[[Any], tuple[Any, dict[str, Any]]]] = {
    A2CCase: sb3_a2c,
    PPOCase: sb3_ppo,
    MujocoPPOCase: sb3_ppo,
    AtariPPOCase: sb3_atari_ppo,
    DQNCase: sb3_dqn,
    QRDQNCase: sb3_qrdqn,
    SACCase: sb3_sac,
    TQCCase: sb3_tqc,
    TD3Case: sb3_td3,
}


def floor_speed(name: str, case: Case) -> float:
    """Frames per second of the same written out by hand; there is one of PPO and
    SAC only."""
    import torch

    from bench.floor_ppo import ppo_speed
    from bench.floor_sac import sac_speed

    torch.set_num_threads(1)
    if isinstance(case, PPOCase):
        return ppo_speed(case)
    assert isinstance(case, SACCase), f"{name} has no floor"
    return sac_speed(case)


def stepping_speed(name: str, case: Case) -> float:
    """Frames per second of the lab's environments with random actions: no agent is
    faster."""
    from slm_lab.env.make import make_env
    from slm_lab.spec.load import parse_spec

    env = make_env(parse_spec(name, case.spec()).env, seed=0)
    space, rng = env.action_space, np.random.default_rng(0)
    size = (case.num_envs, *space.shape)
    if isinstance(space, Discrete):
        actions = rng.integers(space.n, size=(STEPS_AT_ONCE, *size))
    else:
        actions = rng.uniform(-1, 1, (STEPS_AT_ONCE, *size)).astype(np.float32)
    env.reset()
    began, steps = time.perf_counter(), 0
    while (seconds := time.perf_counter() - began) < STEPPING_SECONDS:
        for action in actions:
            env.step(action)
        steps += STEPS_AT_ONCE
    env.close()
    return steps * case.num_envs / seconds


OTHERS = {"sb3": sb3_speed, "floor": floor_speed, "stepping": stepping_speed}


def main() -> None:
    """Measures what the arguments name."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("contestant", choices=["lab", "lab_graph", *OTHERS])
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--frames", type=int, help="in place of those of the case")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    case = replace(CASES[arguments.case], device=arguments.device)
    if arguments.frames is not None:
        case = replace(case, frames=arguments.frames)
    if arguments.device == "cuda":  # kernels are loaded before the clock starts
        measure(
            arguments.contestant,
            arguments.case,
            replace(case, frames=first_frames(case)),
        )
    print(json.dumps(measure(arguments.contestant, arguments.case, case)))


def first_frames(case: Case) -> int:
    """Frames with a few gradient steps."""
    if isinstance(case, OffPolicyCase):
        return case.start + 100 * case.frequency
    assert isinstance(case, OnPolicyCase)
    return 2 * case.horizon * case.num_envs


def measure(contestant: str, name: str, case: Case) -> dict[str, Any]:
    """The speed, and the lab's shares of the time."""
    if contestant not in OTHERS:
        case = replace(case, cuda_graph=contestant == "lab_graph")
        speed, shares = lab_run(name, case)
        return {"frames_per_second": speed, "shares": shares}
    return {"frames_per_second": OTHERS[contestant](name, case)}


if __name__ == "__main__":
    main()
