"""Runs one case in one library and prints its training frames per second as JSON.

python -m bench.contestant {lab|sb3} CASE [--frames N]
"""

import argparse
import json
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.cases import CASES, A2CCase, PPOCase


def lab_speed(name: str, case: PPOCase | A2CCase) -> float:
    """Frames per second of a Session, rows and checkpoints included."""
    import torch

    from slm_lab.experiment.launch.processes import SPAWN
    from slm_lab.experiment.progress import Board
    from slm_lab.experiment.run_dir import RunDir
    from slm_lab.experiment.seeding import session_seeds
    from slm_lab.experiment.session import Session
    from slm_lab.spec.load import parse_spec

    torch.set_num_threads(1)
    spec = parse_spec(name, case.spec())
    with tempfile.TemporaryDirectory() as folder:
        run_dir = RunDir(Path(folder), name)
        for part in ("info", "model"):
            (run_dir.root / part).mkdir()
        session = Session(
            spec, 0, session_seeds(0, 0, 0), run_dir.session(0, 0), Board.allocate(SPAWN, 1)
        )
        began = time.perf_counter()
        result = session.run()
        seconds = time.perf_counter() - began
        session.close()
    return result.frame / seconds


def sb3_speed(name: str, case: PPOCase | A2CCase) -> float:
    """Frames per second of Stable-Baselines3's `learn`."""
    import torch

    torch.set_num_threads(1)
    model = sb3_model(case)
    began = time.perf_counter()
    model.learn(case.frames)
    return model.num_timesteps / (time.perf_counter() - began)


def sb3_model(case: PPOCase | A2CCase) -> Any:
    """The same work in Stable-Baselines3."""
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.env_util import make_vec_env

    hidden = list(case.hidden)
    env = make_vec_env(case.env, case.num_envs, seed=0)
    common = {
        "learning_rate": case.lr,
        "n_steps": case.horizon,
        "gamma": case.gamma,
        "gae_lambda": case.gae_lambda,
        "ent_coef": case.entropy_coef,
        "vf_coef": case.value_coef,
        "max_grad_norm": case.max_grad_norm,
        "policy_kwargs": {
            "net_arch": {"pi": hidden, "vf": hidden},
            "optimizer_kwargs": {"eps": 1e-5},
        },
        "device": "cpu",
        "seed": 0,
    }
    if isinstance(case, A2CCase):
        return A2C("MlpPolicy", env, use_rms_prop=False, **common)
    return PPO(
        "MlpPolicy",
        env,
        batch_size=case.minibatch,
        n_epochs=case.epochs,
        clip_range=case.clip_eps,
        **common,
    )


LIBRARIES = {"lab": lab_speed, "sb3": sb3_speed}


def main() -> None:
    """Measures what the arguments name."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=list(LIBRARIES))
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--frames", type=int, help="in place of those of the case")
    arguments = parser.parse_args()
    case = CASES[arguments.case]
    if arguments.frames is not None:
        case = replace(case, frames=arguments.frames)
    speed = LIBRARIES[arguments.library](arguments.case, case)
    print(json.dumps({"frames_per_second": speed}))


if __name__ == "__main__":
    main()
