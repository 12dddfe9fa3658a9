"""Helpers of many tests: small specs, and Sessions run in this process."""

import copy
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
import torch
from packaging.version import Version

from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.spec.load import parse_spec
from slm_lab.spec.schema.spec import Spec
from slm_lab.testing.sessions import (
    Rank,
    made_once,
    make_session,
    read_rows,
    rows,
    run_ranks,
    run_session,
)

__all__ = [
    "Rank",
    "actor_critic",
    "made_once",
    "make_session",
    "parse",
    "ppo",
    "pqn",
    "q_learning",
    "read_rows",
    "reinforce",
    "rows",
    "run_ranks",
    "run_session",
    "sarsa",
    "soft",
    "vmpo",
]


def needs(package: str, release: str) -> Any:
    """Skips a test of what a package has from a release on."""
    is_older = Version(version(package)) < Version(release)
    return pytest.mark.skipif(is_older, reason=f"{package} {release} brought it")


PPO = {
    "agent": {
        "name": "PPO",
        "algorithm": {
            "name": "PPO",
            "gamma": 0.99,
            "lam": 0.95,
            "clip_eps_spec": {
                "name": "no_decay",
                "start_val": 0.2,
                "end_val": 0.2,
                "start_step": 0,
                "end_step": 0,
            },
            "entropy_coef_spec": {
                "name": "linear_decay",
                "start_val": 0.01,
                "end_val": 0.0,
                "start_step": 0,
                "end_step": 2000,
            },
            "val_loss_coef": 0.5,
            "time_horizon": 16,
            "minibatch_size": 32,
            "training_epoch": 2,
        },
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": {
            "type": "MLPNet",
            "shared": False,
            "hid_layers": [16],
            "hid_layers_activation": "tanh",
            "init_fn": "orthogonal_",
            "clip_grad_val": 0.5,
            "loss_spec": {"name": "MSELoss"},
            "optim_spec": {"name": "GlobalAdam", "lr": 1e-3},
            "gpu": False,
        },
    },
    "env": {"name": "CartPole-v1", "num_envs": 4, "max_frame": 1000},
    "meta": {"log_frequency": 100, "random_seed": 0, "save_interval": 0},
}


def ppo(**changes: Any) -> dict[str, Any]:
    """A small PPO spec; keywords are dotted paths with __ for dots."""
    return _changed(copy.deepcopy(PPO), changes)


def _changed(spec: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for path, value in changes.items():
        *parents, last = path.split("__")
        block: dict[str, Any] = spec
        for parent in parents:
            block = block[parent]
        block[last] = value
    return spec


ENTROPY = {
    "name": "linear_decay",
    "start_val": 0.01,
    "end_val": 0.0,
    "start_step": 0,
    "end_step": 2000,
}


def reinforce(**changes: Any) -> dict[str, Any]:
    """A small Reinforce spec on whole episodes."""
    algorithm = {
        "name": "Reinforce",
        "gamma": 0.99,
        "center_return": True,
        "training_frequency": 2,
        "entropy_coef_spec": ENTROPY,
    }
    spec = ppo(agent__algorithm=algorithm, agent__memory={"name": "OnPolicyReplay"})
    return _changed(spec, changes)


def actor_critic(**changes: Any) -> dict[str, Any]:
    """A small A2C spec."""
    algorithm = {
        "name": "ActorCritic",
        "gamma": 0.99,
        "lam": 0.95,
        "training_frequency": 8,
        "val_loss_coef": 0.5,
        "entropy_coef_spec": ENTROPY,
    }
    return _changed(ppo(agent__algorithm=algorithm), changes)


EXPLORE = {
    "name": "linear_decay",
    "start_val": 1.0,
    "end_val": 0.1,
    "start_step": 0,
    "end_step": 500,
}


def sarsa(**changes: Any) -> dict[str, Any]:
    """A small SARSA spec, ε-greedy."""
    algorithm = {
        "name": "SARSA",
        "gamma": 0.99,
        "training_frequency": 8,
        "action_policy": "epsilon_greedy",
        "explore_var_spec": EXPLORE,
    }
    return _changed(ppo(agent__algorithm=algorithm), changes)


def pqn(**changes: Any) -> dict[str, Any]:
    """A small PQN spec, ε-greedy, with layer normalisation."""
    algorithm = {
        "name": "PQN",
        "gamma": 0.99,
        "lam": 0.65,
        "time_horizon": 16,
        "minibatch_size": 32,
        "training_epoch": 2,
        "action_policy": "epsilon_greedy",
        "explore_var_spec": EXPLORE,
    }
    spec = ppo(agent__algorithm=algorithm)
    return _changed(spec, {"agent__net__layer_norm": True, **changes})


def vmpo(**changes: Any) -> dict[str, Any]:
    """A small V-MPO spec."""
    algorithm = {
        "name": "VMPO",
        "gamma": 0.99,
        "lam": 0.95,
        "val_loss_coef": 0.5,
        "time_horizon": 16,
        "minibatch_size": 32,
        "training_epoch": 2,
    }
    return _changed(ppo(agent__algorithm=algorithm), changes)


def q_learning(name: str, **changes: Any) -> dict[str, Any]:
    """A small spec of the algorithm `name` of the DQN family, ε-greedy, with uniform
    replay."""
    algorithm = {
        "name": name,
        "gamma": 0.99,
        "training_frequency": 16,
        "training_start_step": 32,
        "training_batch_iter": 2,
        "action_policy": "epsilon_greedy",
        "explore_var_spec": EXPLORE,
    }
    memory = {"name": "Replay", "batch_size": 16, "max_size": 200}
    spec = ppo(agent__algorithm=algorithm, agent__memory=memory)
    return _changed(spec, {"agent__net__update_frequency": 64, **changes})


def soft(name: str, **changes: Any) -> dict[str, Any]:
    """A small spec of `name`, an actor with critics, with uniform replay."""
    algorithm = {
        "name": name,
        "gamma": 0.99,
        "training_frequency": 16,
        "training_start_step": 32,
        "training_batch_iter": 2,
    }
    targets = {"agent__net__update_type": "polyak", "agent__net__polyak_coef": 0.05}
    memory = {"name": "Replay", "batch_size": 16, "max_size": 200}
    spec = ppo(agent__algorithm=algorithm, agent__memory=memory)
    return _changed(spec, {**(targets if name != "CrossQ" else {}), **changes})


def seeded(seed: int) -> torch.Generator:
    """A generator of torch."""
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Standard normal numbers, the same for a seed."""
    return torch.randn(*shape, generator=seeded(seed))


def memory_layout(obs_shape: tuple[int, ...], **keys: Any) -> MemoryLayout:
    """Vectors or images of float32, and discrete actions; by default one step of one
    environment."""
    plain: dict[str, Any] = {
        "horizon": 1,
        "num_envs": 1,
        "obs_dtype": np.dtype(np.float32),
        "action_shape": (),
        "action_dtype": np.dtype(np.int64),
    }
    return MemoryLayout(obs_shape=obs_shape, **{**plain, **keys})


def parse(data: dict[str, Any], name: str = "small") -> Spec:
    return parse_spec(name, data)


COSTS = {
    "acting": [0.001, 0.002],
    "environment": [0.001, 0.003],
    "memory": [0.001],
    "gradient": [0.01, 0.02],
    "step": [0.002],
    "update": [0.001],
    "receive": [0.001],
    "publish": [0.001],
    "exchange": [0.001],
    "exchanged_float": [1e-7],
}
"""Costs of a training in virtual time, in seconds."""
