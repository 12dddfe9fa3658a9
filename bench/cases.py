"""The work on which speeds are compared: the same hyperparameters for every library."""

from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import override


@dataclass(frozen=True)
class Case:
    """An algorithm in an environment."""

    env: str
    num_envs: int
    frames: int
    hidden: tuple[int, ...]
    lr: float
    gamma: float = 0.99
    precision: str = "float32"
    """That of the lab; the others compute in float32."""
    matmul: str = "torch"
    """The library of the lab's products on a CPU; the others multiply by torch."""
    device: str = "cpu"
    """Where the networks are: "cpu" or "cuda"."""
    backend: str = "gymnasium"
    """The lab's `env.backend`; the others step Gymnasium's environments."""
    cuda_graph: bool = False
    """Whether the lab replays its gradient steps on the GPU as CUDA graphs."""

    def spec(self) -> dict[str, Any]:
        """The case as a spec of this lab."""
        agent = self.agent()
        device = {"gpu": self.device == "cuda", "cuda_graph": self.cuda_graph}
        agent["net"] |= {"precision": self.precision, "matmul": self.matmul, **device}
        return {
            "agent": agent,
            "env": {
                "name": self.env,
                "num_envs": self.num_envs,
                "max_frame": self.frames,
                "backend": self.backend,
                **self.env_keys(),
            },
            "meta": {"log_frequency": 10_000, "random_seed": 0},
        }

    def env_keys(self) -> dict[str, Any]:
        """What else is in the block `env`."""
        return {}

    def agent(self) -> dict[str, Any]:
        """The block `agent` of the spec."""
        raise NotImplementedError


@dataclass(frozen=True)
class OnPolicyCase(Case):
    """Separate actor and critic, tanh, one optimizer setting for both."""

    hidden: tuple[int, ...] = (64, 64)
    lr: float = 3e-4
    horizon: int = 128
    gae_lambda: float = 0.95
    entropy_coef: float = 0.0
    value_coef: float = 0.5
    max_grad_norm: float = 0.5

    @override
    def agent(self) -> dict[str, Any]:
        return {
            "algorithm": {
                "gamma": self.gamma,
                "lam": self.gae_lambda,
                "entropy_coef_spec": constant(self.entropy_coef),
                "val_loss_coef": self.value_coef,
                **self.algorithm(),
            },
            "memory": {"name": "OnPolicyBatchReplay"},
            "net": {
                "init_fn": "orthogonal_",
                "actor_init_std": 0.01,
                "critic_init_std": 1.0,
                "clip_grad_val": self.max_grad_norm,
                "loss_spec": {"name": "MSELoss"},
                "optim_spec": {"name": "GlobalAdam", "lr": self.lr, "eps": 1e-5},
                **self.layers(),
            },
        }

    def layers(self) -> dict[str, Any]:
        """The kind of net and its layers."""
        return {
            "type": "MLPNet",
            "shared": False,
            "hid_layers": list(self.hidden),
            "hid_layers_activation": "tanh",
            "use_same_optim": True,
        }

    def algorithm(self) -> dict[str, Any]:
        """The keys of `agent.algorithm` that are not common to all."""
        raise NotImplementedError


@dataclass(frozen=True)
class PPOCase(OnPolicyCase):
    """PPO."""

    minibatch: int = 256
    epochs: int = 4
    clip_eps: float = 0.2

    @override
    def algorithm(self) -> dict[str, Any]:
        return {
            "name": "PPO",
            "clip_eps_spec": constant(self.clip_eps),
            "time_horizon": self.horizon,
            "minibatch_size": self.minibatch,
            "training_epoch": self.epochs,
        }


@dataclass(frozen=True)
class MujocoPPOCase(PPOCase):
    """PPO on normalised observations and rewards, with a σ that does not depend on the
    state."""

    @override
    def env_keys(self) -> dict[str, Any]:
        return {"normalize_obs": True, "normalize_reward": True}

    @override
    def layers(self) -> dict[str, Any]:
        return {**super().layers(), "log_std_init": 0.0}


@dataclass(frozen=True)
class AtariPPOCase(PPOCase):
    """PPO on images, with one network: that of Mnih et al. (2015)."""

    @override
    def env_keys(self) -> dict[str, Any]:
        return {"life_loss_info": True, "num_threads": 1}

    @override
    def layers(self) -> dict[str, Any]:
        return {
            "type": "ConvNet",
            "shared": True,
            "normalize": True,
            "conv_hid_layers": [[32, 8, 4], [64, 4, 2], [64, 3, 1]],
            "fc_hid_layers": [512],
            "hid_layers_activation": "relu",
        }


@dataclass(frozen=True)
class A2CCase(OnPolicyCase):
    """A2C: one gradient step per rollout."""

    @override
    def algorithm(self) -> dict[str, Any]:
        return {"name": "ActorCritic", "training_frequency": self.horizon}


@dataclass(frozen=True)
class OffPolicyCase(Case):
    """Uniform replay, relu."""

    batch: int = 256
    buffer: int = 100_000
    start: int = 1_000
    frequency: int = 1
    """Frames per gradient step."""

    def net(self) -> dict[str, Any]:
        """The keys of `agent.net` that are common to all."""
        return {
            "type": "MLPNet",
            "hid_layers": list(self.hidden),
            "hid_layers_activation": "relu",
            "optim_spec": {"name": "GlobalAdam", "lr": self.lr},
        }

    @override
    def agent(self) -> dict[str, Any]:
        return {
            "algorithm": {
                "gamma": self.gamma,
                "training_frequency": self.frequency,
                "training_start_step": self.start,
                **self.algorithm(),
            },
            "memory": {
                "name": "Replay",
                "batch_size": self.batch,
                "max_size": self.buffer,
            },
            "net": {**self.net(), **self.target()},
        }

    def algorithm(self) -> dict[str, Any]:
        """The keys of `agent.algorithm` that are not common to all."""
        raise NotImplementedError

    def target(self) -> dict[str, Any]:
        """How the target network follows, and what else is in `agent.net`."""
        raise NotImplementedError


@dataclass(frozen=True)
class DQNCase(OffPolicyCase):
    """DQN, ε-greedy, with a target network that is copied."""

    batch: int = 128
    buffer: int = 10_000
    frequency: int = 10
    target_interval: int = 500
    last_epsilon: float = 0.05
    exploration_frames: int = 10_000
    max_grad_norm: float = 10.0

    @override
    def algorithm(self) -> dict[str, Any]:
        decay = {
            "name": "linear_decay",
            "start_val": 1.0,
            "end_val": self.last_epsilon,
            "start_step": 0,
            "end_step": self.exploration_frames,
        }
        return {
            "name": "DQN",
            "action_policy": "epsilon_greedy",
            "explore_var_spec": decay,
        }

    @override
    def target(self) -> dict[str, Any]:
        return {
            "update_type": "replace",
            "update_frequency": self.target_interval,
            "clip_grad_val": self.max_grad_norm,
            "loss_spec": {"name": "SmoothL1Loss"},
        }


@dataclass(frozen=True)
class QRDQNCase(DQNCase):
    """DQN on quantiles of the return."""

    quantiles: int = 20

    @override
    def algorithm(self) -> dict[str, Any]:
        return {
            **super().algorithm(),
            "name": "QRDQN",
            "num_quantiles": self.quantiles,
        }

    @override
    def target(self) -> dict[str, Any]:
        keys = super().target()
        del keys["loss_spec"]  # the loss is that of quantiles
        return keys


@dataclass(frozen=True)
class SACCase(OffPolicyCase):
    """SAC with a tuned temperature, one gradient step per frame."""

    tau: float = 0.005

    @override
    def algorithm(self) -> dict[str, Any]:
        return {"name": "SoftActorCritic"}

    @override
    def target(self) -> dict[str, Any]:
        return {"update_type": "polyak", "polyak_coef": self.tau}


@dataclass(frozen=True)
class TQCCase(SACCase):
    """SAC with truncated quantile critics."""

    critics: int = 2
    quantiles: int = 25
    dropped: int = 2
    """Quantiles per critic that targets leave out."""

    @override
    def algorithm(self) -> dict[str, Any]:
        return {
            **super().algorithm(),
            "name": "TQC",
            "num_critics": self.critics,
            "num_quantiles": self.quantiles,
            "quantiles_dropped": self.dropped,
        }


@dataclass(frozen=True)
class TD3Case(OffPolicyCase):
    """TD3, one gradient step of the critics per frame."""

    tau: float = 0.005
    noise: float = 0.1
    """The standard deviation of the noise on actions."""
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    delay: int = 2
    """Critic updates per update of actor and targets."""

    @override
    def algorithm(self) -> dict[str, Any]:
        return {
            "name": "TD3",
            "action_policy": "gaussian",
            "explore_var_spec": constant(self.noise),
            "target_noise": self.target_noise,
            "target_noise_clip": self.target_noise_clip,
            "policy_delay": self.delay,
        }

    @override
    def target(self) -> dict[str, Any]:
        return {
            "update_type": "polyak",
            "polyak_coef": self.tau,
            "loss_spec": {"name": "MSELoss"},
        }


def constant(value: float) -> dict[str, Any]:
    """A schedule that stays where it is."""
    return {"name": "no_decay", "start_val": value}


CASES: dict[str, Case] = {
    "ppo_cartpole": PPOCase("CartPole-v1", 8, 200_000),
    "ppo_cartpole_small": PPOCase("CartPole-v1", 4, 80_000, horizon=32, minibatch=64),
    "ppo_lunarlander": PPOCase("LunarLander-v3", 8, 100_000),
    "ppo_hopper": MujocoPPOCase(
        "Hopper-v5", 4, 20_480, horizon=512, minibatch=64, epochs=10
    ),
    "ppo_pong": AtariPPOCase(
        "ALE/Pong-v5", 8, 6_144, lr=2.5e-4, entropy_coef=0.01, clip_eps=0.1
    ),
    "ppo_humanoid": MujocoPPOCase(
        "Humanoid-v5", 64, 200_000, (256, 256), minibatch=2048, horizon=64, epochs=10
    ),
    "a2c_cartpole": A2CCase(
        "CartPole-v1", 8, 100_000, lr=7e-4, horizon=5, gae_lambda=1.0
    ),
    "dqn_cartpole": DQNCase("CartPole-v1", 1, 50_000, (120, 84), 2.5e-4),
    "dqn_cartpole_vector": DQNCase("CartPole-v1", 10, 100_000, (120, 84), 2.5e-4),
    "qrdqn_cartpole": QRDQNCase("CartPole-v1", 1, 50_000, (120, 84), 2.5e-4),
    "sac_pendulum": SACCase("Pendulum-v1", 1, 3_000, (256, 256), 3e-4),
    "sac_halfcheetah": SACCase("HalfCheetah-v5", 1, 3_000, (256, 256), 3e-4),
    "tqc_halfcheetah": TQCCase("HalfCheetah-v5", 1, 3_000, (256, 256), 3e-4),
    "td3_halfcheetah": TD3Case("HalfCheetah-v5", 1, 5_000, (256, 256), 3e-4),
}
for _name in ("sac_halfcheetah", "ppo_pong"):
    CASES[f"{_name}_bf16"] = replace(CASES[_name], precision="bf16")
CASES["sac_halfcheetah_numpy"] = replace(CASES["sac_halfcheetah"], matmul="numpy")
for _name in ("ppo_lunarlander", "ppo_hopper", "ppo_pong"):
    CASES[f"{_name}_envpool"] = replace(CASES[_name], backend="envpool")
