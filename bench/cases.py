"""The work on which speeds are compared: the same hyperparameters for every library."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PPOCase:
    """PPO with separate actor and critic, tanh, one optimizer setting for both."""

    env: str
    num_envs: int
    horizon: int
    minibatch: int
    epochs: int
    hidden: tuple[int, ...]
    frames: int
    lr: float = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_eps: float = 0.2
    entropy_coef: float = 0.0
    value_coef: float = 0.5
    max_grad_norm: float = 0.5

    def spec(self) -> dict[str, Any]:
        """The case as a spec of this lab."""

        def constant(value: float) -> dict[str, Any]:
            return {
                "name": "no_decay",
                "start_val": value,
                "end_val": value,
                "start_step": 0,
                "end_step": 0,
            }

        return {
            "agent": {
                "name": "PPO",
                "algorithm": {
                    "name": "PPO",
                    "gamma": self.gamma,
                    "lam": self.gae_lambda,
                    "clip_eps_spec": constant(self.clip_eps),
                    "entropy_coef_spec": constant(self.entropy_coef),
                    "val_loss_coef": self.value_coef,
                    "time_horizon": self.horizon,
                    "minibatch_size": self.minibatch,
                    "training_epoch": self.epochs,
                },
                "memory": {"name": "OnPolicyBatchReplay"},
                "net": {
                    "type": "MLPNet",
                    "shared": False,
                    "hid_layers": list(self.hidden),
                    "hid_layers_activation": "tanh",
                    "init_fn": "orthogonal_",
                    "actor_init_std": 0.01,
                    "critic_init_std": 1.0,
                    "clip_grad_val": self.max_grad_norm,
                    "use_same_optim": True,
                    "loss_spec": {"name": "MSELoss"},
                    "optim_spec": {"name": "GlobalAdam", "lr": self.lr, "eps": 1e-5},
                    "gpu": False,
                },
            },
            "env": {"name": self.env, "num_envs": self.num_envs, "max_frame": self.frames},
            "meta": {"log_frequency": 10_000, "random_seed": 0},
        }


CASES = {
    "ppo_cartpole": PPOCase("CartPole-v1", 8, 128, 256, 4, (64, 64), 200_000),
    "ppo_cartpole_small": PPOCase("CartPole-v1", 4, 32, 64, 4, (64, 64), 80_000),
    "ppo_lunarlander": PPOCase("LunarLander-v3", 8, 128, 256, 4, (64, 64), 100_000),
}
