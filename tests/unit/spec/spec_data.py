"""Valid specs that the tests start from, one per corner of the language."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PPO: dict[str, Any] = {
    "agent": {
        "name": "PPO",
        "algorithm": {
            "name": "PPO",
            "action_pdtype": "default",
            "action_policy": "default",
            "explore_var_spec": None,
            "gamma": 0.99,
            "lam": 0.95,
            "clip_eps_spec": {
                "name": "linear_decay",
                "start_val": 0.2,
                "end_val": 0.0,
                "start_step": 1000,
                "end_step": 10000,
            },
            "entropy_coef_spec": {"name": "no_decay", "start_val": 0.01},
            "val_loss_coef": 0.5,
            "time_horizon": 32,
            "minibatch_size": 64,
            "training_epoch": 4,
            "clip_vloss": True,
            "target_kl": 0.02,
        },
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": {
            "type": "MLPNet",
            "shared": False,
            "hid_layers": [64, 64],
            "hid_layers_activation": "tanh",
            "init_fn": "orthogonal_",
            "actor_init_std": 0.01,
            "critic_init_std": 1.0,
            "clip_grad_val": 0.5,
            "use_same_optim": True,
            "loss_spec": {"name": "SmoothL1Loss", "beta": 0.5},
            "optim_spec": {"name": "GlobalAdam", "lr": 3e-4, "betas": [0.9, 0.99]},
            "lr_scheduler_spec": {
                "name": "LinearToMin",
                "frame": 100000,
                "min_factor": 0.1,
            },
            "gpu": False,
        },
    },
    "env": {
        "name": "CartPole-v1",
        "num_envs": 4,
        "max_t": None,
        "max_frame": 100000,
        "normalize_obs": True,
        "clip_reward": 5.0,
    },
    "meta": {
        "distributed": False,
        "max_session": 2,
        "max_trial": 1,
        "log_frequency": 500,
        "eval_frequency": 500,
        "rigorous_eval": 0,
        "random_seed": 7,
    },
}

RANDOM: dict[str, Any] = {
    "agent": {"name": "Random", "algorithm": {"name": "Random"}},
    "env": {"name": "CartPole-v1", "max_frame": 1000},
    "meta": {},
}

LAYERS = [
    {"LazyLinear": {"out_features": 64}},
    {"LayerNorm": {"normalized_shape": [64]}},
    {"SiLU": None},
]
ARC: dict[str, Any] = {
    "modules": {"body": {"Sequential": LAYERS}},
    "graph": {"input": "x", "modules": {"body": ["x"]}, "output": "body"},
}

SAC: dict[str, Any] = {
    "agent": {
        "name": "SAC",
        "algorithm": {
            "name": "SoftActorCritic",
            "gamma": 0.99,
            "training_frequency": 1,
            "training_iter": 4,
            "training_start_step": 1000,
            "policy_delay": 2,
        },
        "memory": {
            "name": "Replay",
            "batch_size": 256,
            "max_size": 100000,
            "use_cer": False,
        },
        "net": {
            "type": "TorchArcNet",
            "arc": ARC,
            "optim_spec": {"name": "Adam", "lr": 1e-3, "betas": [0.5, 0.999]},
            "update_type": "polyak",
            "polyak_coef": 0.005,
            "gpu": "auto",
        },
    },
    "env": {"name": "Pendulum-v1", "num_envs": 4, "max_frame": 1e5},
    "meta": {"log_frequency": 500},
}

DQN: dict[str, Any] = {
    "agent": {
        "name": "DQN",
        "algorithm": {
            "name": "DoubleDQN",
            "action_pdtype": "Argmax",
            "action_policy": "epsilon_greedy",
            "explore_var_spec": {
                "name": "linear_decay",
                "start_val": 1.0,
                "end_val": 0.05,
                "start_step": 0,
                "end_step": 10000,
            },
            "gamma": 0.99,
            "training_batch_iter": 2,
            "training_iter": 4,
            "training_frequency": 4,
            "training_start_step": 32,
        },
        "memory": {
            "name": "PrioritizedReplay",
            "alpha": 0.6,
            "epsilon": 1e-4,
            "batch_size": 32,
            "max_size": 10000,
        },
        "net": {
            "type": "DuelingConvNet",
            "conv_hid_layers": [[32, 8, 4, 0, 1], [64, 4, 2, 0, 1]],
            "fc_hid_layers": [512],
            "normalize": True,
            "update_type": "replace",
            "update_frequency": 1000,
        },
    },
    "env": {
        "name": "ALE/Pong-v5",
        "num_envs": 16,
        "max_frame": 1e7,
        "life_loss_info": True,
    },
    "meta": {"log_frequency": 10000},
}

SIL: dict[str, Any] = {
    "agent": {
        "algorithm": {
            "name": "PPOSIL",
            "gamma": 0.99,
            "time_horizon": 256,
            "minibatch_size": 128,
            "training_epoch": 10,
            "sil_policy_loss_coef": 1.0,
            "sil_val_loss_coef": 0.01,
            "training_batch_iter": 4,
            "training_iter": 4,
        },
        "memory": {
            "name": "OnPolicyBatchReplay",
            "sil_replay_name": "Replay",
            "batch_size": 128,
            "max_size": 10000,
            "use_cer": True,
        },
        "net": {
            "type": "HydraMLPNet",
            "hid_layers": [[32], [64], [16]],
            "actor_optim_spec": {"name": "AdamW", "lr": 1e-4},
            "critic_optim_spec": {"name": "AdamW", "lr": 1e-3},
        },
    },
    "env": {"name": "CartPole-v1", "num_envs": 4, "max_frame": 200000},
    "meta": {},
}

A3C: dict[str, Any] = {
    "agent": {
        "algorithm": {
            "name": "ActorCritic",
            "gamma": 0.99,
            "lam": None,
            "num_step_returns": 5,
            "entropy_coef_spec": {"start_val": 0.01},
            "training_frequency": 5,
        },
        "memory": {"name": "OnPolicyBatchReplay"},
        "net": {
            "type": "RecurrentNet",
            "cell_type": "GRU",
            "fc_hid_layers": [],
            "rnn_hidden_size": 64,
            "optim_spec": {"name": "GlobalRMSprop", "lr": 7e-4, "alpha": 0.99},
        },
    },
    "env": {
        "name": "CartPole-v1",
        "num_envs": 4,
        "max_frame": 200000,
        "reward_scale": "sign",
    },
    "meta": {
        "distributed": "synced",
        "max_session": 4,
        "max_run": 2,
        "search_resources": {"cpu": 1, "gpu": 0.125},
        "confirm": {"top": 3, "max_session": 4},
        "actor_learner": {
            "unroll_length": 32,
            "correction": {"name": "vtrace", "rho_bar": 1.5},
            "inference": "local",
            "train_ratio": 0.5,
            "serial": False,
        },
    },
    "search": {
        "agent": {"algorithm": {"gamma__uniform": [0.9, 0.99]}},
        "agent.net.optim_spec.lr__loguniform": [1e-4, 1e-2],
        "env.num_envs__choice": [2, 4],
    },
}

ALL = {"PPO": PPO, "RANDOM": RANDOM, "SAC": SAC, "DQN": DQN, "SIL": SIL, "A3C": A3C}


def changed(
    spec: dict[str, Any], changes: Mapping[str, Any] | None = None, /, **more: Any
) -> dict[str, Any]:
    """A copy with values set by dotted path; keywords have two underscores for dots. A
    path may leave out "agent." before algorithm, memory, net and critic_net."""
    result = copy.deepcopy(spec)
    by_path = dict(changes or {}) | {
        key.replace("__", "."): value for key, value in more.items()
    }
    for path, value in by_path.items():
        keys = path.split(".")
        set_at(result, ["agent", *keys] if keys[0] in OF_AGENT else keys, value)
    return result


OF_AGENT = ("algorithm", "memory", "net", "critic_net")


def set_at(tree: Any, path: list[str], value: Any) -> None:
    for key in path[:-1]:
        tree = tree[int(key)] if isinstance(tree, list) else tree[key]
    if isinstance(tree, list):
        tree[int(path[-1])] = value
    else:
        tree[path[-1]] = value


def fillings(path: Path) -> list[str]:
    """What `-s` has to be given for the templates of a shipped file."""
    if "${env}" in path.read_text():
        return ["env=CartPole-v1"]
    return []
