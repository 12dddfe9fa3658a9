"""The work on which speeds are compared: the same hyperparameters for every library."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """An on-policy algorithm with separate actor and critic, tanh, one optimizer for both."""

    env: str
    num_envs: int
    horizon: int
    frames: int
    hidden: tuple[int, ...] = (64, 64)
    lr: float = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    entropy_coef: float = 0.0
    value_coef: float = 0.5
    max_grad_norm: float = 0.5

    def spec(self) -> dict[str, Any]:
        """The case as a spec of this lab."""
        return {
            "agent": {
                "algorithm": {
                    "gamma": self.gamma,
                    "lam": self.gae_lambda,
                    "entropy_coef_spec": constant(self.entropy_coef),
                    "val_loss_coef": self.value_coef,
                    **self.algorithm(),
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

    def algorithm(self) -> dict[str, Any]:
        """The keys of `agent.algorithm` that are not common to all."""
        raise NotImplementedError


@dataclass(frozen=True)
class PPOCase(Case):
    """PPO."""

    minibatch: int = 256
    epochs: int = 4
    clip_eps: float = 0.2

    def algorithm(self) -> dict[str, Any]:
        """See `Case.algorithm`."""
        return {
            "name": "PPO",
            "clip_eps_spec": constant(self.clip_eps),
            "time_horizon": self.horizon,
            "minibatch_size": self.minibatch,
            "training_epoch": self.epochs,
        }


@dataclass(frozen=True)
class A2CCase(Case):
    """A2C: one gradient step per rollout."""

    def algorithm(self) -> dict[str, Any]:
        """See `Case.algorithm`."""
        return {"name": "ActorCritic", "training_frequency": self.horizon}


def constant(value: float) -> dict[str, Any]:
    """A schedule that stays where it is."""
    return {"name": "no_decay", "start_val": value}


CASES: dict[str, PPOCase | A2CCase] = {
    "ppo_cartpole": PPOCase("CartPole-v1", 8, 128, 200_000),
    "ppo_cartpole_small": PPOCase("CartPole-v1", 4, 32, 80_000, minibatch=64),
    "ppo_lunarlander": PPOCase("LunarLander-v3", 8, 128, 100_000),
    "a2c_cartpole": A2CCase("CartPole-v1", 8, 5, 100_000, lr=7e-4, gae_lambda=1.0),
}
