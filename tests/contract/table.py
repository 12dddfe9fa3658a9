"""One row or more for every part that is built: what the contract suites run over.

A part that is registered and has no row fails in `test_table.py`; a row is all that it needs to
be covered by every suite.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.agent.replay_config import ReplayConfig, TrainingSchedule
from slm_lab.core.registry import Registry
from slm_lab.spec.schema.spec import Spec
from tests.learning.probe_envs import register_probes
from tests.support import actor_critic, parse, ppo, q_learning, reinforce, sarsa, soft

register_probes()

Data = dict[str, Any]

CONTINUOUS = {"env__name": "Pendulum-v1", "env__max_t": 40}
TWO_ACTIONS = {"env__name": "ProbeReachPoint-v0"}
CHOICES = {"env__name": "ProbeMatchChoices-v0"}
BITS = {"env__name": "ProbeMatchBits-v0"}
PARTS = {"env__name": "ProbeMatchParts-v0"}
IMAGES = {"env__name": "ProbeMatchImage-v0"}


@dataclass(frozen=True)
class Row:
    """One way of using an algorithm: a spec with four training events or more in 600 frames."""

    data: Data
    bounded: bool = True
    """Whether every action that it draws lies in the action space; others are clipped."""

    @property
    def spec(self) -> Spec:
        """The spec, with a row in the CSV every 100 frames."""
        return parse({**self.data, "env": {**self.data["env"], "max_frame": 600}})

    @property
    def learns(self) -> bool:
        """Whether there is anything to learn from."""
        return "memory" in self.data["agent"]


def decay(start: float, end: float) -> Data:
    """A schedule that ends with the run."""
    return {"name": "linear_decay", "start_val": start, "end_val": end, "start_step": 0,
            "end_step": 600}  # fmt: skip


def exploring(policy: str) -> Data:
    """An action policy with its variable."""
    return {
        "agent__algorithm__action_policy": policy,
        "agent__algorithm__explore_var_spec": decay(1.0, 0.1),
    }


def pdtype(name: str) -> Data:
    """A distribution of actions."""
    return {"agent__algorithm__action_pdtype": name}


def random(**env: Any) -> Data:
    """The agent that learns nothing."""
    data = ppo(**env)
    return {**data, "agent": {"name": "Random", "algorithm": {"name": "Random"}}}


# A bias before batch normalisation has a gradient of rounding errors. Adam would make steps of full
# size of them, and no two ways of computing could be compared.
GENTLE = {"agent__net__optim_spec": {"name": "SGD", "lr": 1e-2, "momentum": 0.9}}
NORM_LAYERS = {"agent__net__layer_norm": True, "agent__net__batch_norm": True, **GENTLE}

# For images of (2, 12, 12): (4, 5, 5), (6, 3, 3), 54 features.
RECURRENT: Data = {
    "fc_hid_layers": [12], "hid_layers_activation": "tanh", "rnn_hidden_size": 6, "seq_len": 8
}  # fmt: skip
CONV: Data = {
    "conv_hid_layers": [[4, 4, 2], [6, 3, 1, 0, 1]],
    "fc_hid_layers": [8],
    "hid_layers_activation": "relu",
    "init_fn": "orthogonal_",
    "normalize": True,
}

TANH = {"hid_layers_activation": "tanh", "init_fn": "orthogonal_"}


def layer(name: str, **args: Any) -> Data:
    """A layer of an arc."""
    return {name: args or None}


def arc(*layers: Data) -> Data:
    """One body of these layers."""
    graph = {"input": "x", "modules": {"body": ["x"]}, "output": "body"}
    return {"modules": {"body": {"Sequential": list(layers)}}, "graph": graph}


PERCEPTRON = arc(
    layer("LazyLinear", out_features=8), layer("Tanh"),
    layer("LazyLinear", out_features=6), layer("Tanh"),
)  # fmt: skip
CONVOLUTIONS = arc(
    layer("LazyConv2d", out_channels=4, kernel_size=4, stride=2), layer("ReLU"),
    layer("Flatten"), layer("LazyLinear", out_features=8), layer("ReLU"),
)  # fmt: skip
RENORMALISED = arc(
    layer("LazyLinear", out_features=8), layer("SiLU"),
    layer("LazyBatchRenorm1d", warmup_steps=4, momentum=0.1),
    layer("LazyLinear", out_features=6), layer("LayerNorm", normalized_shape=[6]), layer("SELU"),
)  # fmt: skip


def net(kind: str, block: Data, **changes: Any) -> Data:
    """Another net with the optimizer of the small specs."""
    optim = {"clip_grad_val": 0.5, "optim_spec": {"name": "GlobalAdam", "lr": 1e-3}}
    return {"agent__net": {"type": kind, **optim, **block, **changes}}


PPO = {
    "separate": Row(ppo()),
    "shared": Row(ppo(agent__net__shared=True)),
    "continuous": Row(
        ppo(**CONTINUOUS, env__normalize_obs=True, env__normalize_reward=True), bounded=False
    ),
    "free_log_std": Row(ppo(**TWO_ACTIONS, agent__net__log_std_init=-0.5), bounded=False),
    "beta": Row(ppo(**TWO_ACTIONS, **pdtype("Beta"))),
    "log_normal": Row(ppo(**TWO_ACTIONS, **pdtype("LogNormal")), bounded=False),
    "multivariate": Row(
        ppo(**TWO_ACTIONS, **pdtype("MultivariateNormal"), agent__net__shared=True), bounded=False
    ),
    "multivariate_free_log_std": Row(
        ppo(**TWO_ACTIONS, **pdtype("MultivariateNormal"), agent__net__log_std_init=-0.5),
        bounded=False,
    ),
    "gumbel_softmax": Row(ppo(**pdtype("GumbelSoftmax"))),
    "multi_discrete": Row(ppo(**CHOICES)),
    "multi_binary": Row(ppo(**BITS)),
    "dict_obs": Row(ppo(**PARTS)),
    "random_policy": Row(ppo(**TWO_ACTIONS, agent__algorithm__action_policy="random")),
    "epsilon_greedy": Row(ppo(**exploring("epsilon_greedy"))),
    "boltzmann": Row(ppo(**exploring("boltzmann"))),
    "acrobot_max_t": Row(ppo(env__name="Acrobot-v1", env__max_t=30)),
    "normalized_targets": Row(
        ppo(agent__algorithm__normalize_v_targets=True, agent__algorithm__clip_vloss=True)
    ),
    "percentile_symlog": Row(
        ppo(agent__algorithm__normalize_advantages="percentile", agent__algorithm__symlog=True)
    ),
    "rmsprop_scheduled": Row(
        ppo(
            agent__net__optim_spec={"name": "GlobalRMSprop", "lr": 1e-3},
            agent__net__lr_scheduler_spec={"name": "LinearToZero", "frame": 600},
        )
    ),
    "torch_optimizer": Row(
        ppo(
            agent__net__optim_spec={"name": "NAdam", "lr": 1e-3},
            agent__net__lr_scheduler_spec={"name": "StepLR", "step_size": 20},
        )
    ),
    "norm_layers": Row(ppo(**NORM_LAYERS)),
    "images": Row(ppo(**IMAGES, **net("ConvNet", CONV))),
    "recurrent": Row(ppo(**net("RecurrentNet", RECURRENT))),
    "recurrent_shared_lstm": Row(
        ppo(**net("RecurrentNet", RECURRENT, shared=True, cell_type="LSTM"))
    ),
    "hydra": Row(
        ppo(**net("HydraMLPNet", {**TANH, "hid_layers": [[8], [6], [[5], []]]}, shared=True))
    ),
    "arc": Row(ppo(**net("TorchArcNet", {"arc": PERCEPTRON, "critic_arc": RENORMALISED}))),
    "arc_images": Row(ppo(**IMAGES, **net("TorchArcNet", {"arc": CONVOLUTIONS}, shared=True))),
}

REINFORCE = {
    "recurrent": Row(reinforce(**net("RecurrentNet", RECURRENT))),
    "discrete": Row(reinforce()),
    "continuous": Row(reinforce(**{**CONTINUOUS, "env__max_t": 20}), bounded=False),
    "multi_discrete": Row(reinforce(**CHOICES)),
    "multi_binary": Row(reinforce(**BITS, **pdtype("Bernoulli"))),
    "epsilon_greedy": Row(reinforce(**exploring("epsilon_greedy"))),
    "cross_entropy": Row(
        reinforce(
            agent__memory={"name": "OnPolicyCrossEntropy", "cross_entropy": 0.5},
            agent__algorithm__training_frequency=3,
        )
    ),
}

EPISODES: Data = {
    "agent__algorithm__lam": None,
    "agent__algorithm__training_frequency": 3,
    "agent__memory": {"name": "OnPolicyReplay"},
}

ACTOR_CRITIC = {
    "recurrent": Row(actor_critic(**net("RecurrentNet", RECURRENT))),
    "gae": Row(actor_critic()),
    "n_step": Row(
        actor_critic(
            agent__algorithm__lam=None,
            agent__algorithm__num_step_returns=3,
            agent__net__shared=True,
        )
    ),
    "episodes": Row(actor_critic(**EPISODES, env__max_t=40)),
    "continuous": Row(actor_critic(**CONTINUOUS), bounded=False),
    "beta": Row(actor_critic(**TWO_ACTIONS, **pdtype("Beta"))),
    "multi_discrete": Row(actor_critic(**CHOICES, **pdtype("MultiCategorical"))),
    "multi_binary": Row(actor_critic(**BITS)),
}

SARSA = {
    "epsilon_greedy": Row(sarsa()),
    "boltzmann_episodes": Row(
        sarsa(
            **exploring("boltzmann"),
            agent__memory={"name": "OnPolicyReplay"},
            agent__algorithm__training_frequency=3,
            env__max_t=40,
        )
    ),
    "dueling": Row(sarsa(agent__net__type="DuelingMLPNet")),
    "n_step": Row(sarsa(agent__algorithm__num_step_returns=3)),
}

PRIORITIZED = {"name": "PrioritizedReplay", "batch_size": 16, "max_size": 200, "alpha": 0.6,
               "epsilon": 1e-4, "beta": decay(0.4, 1.0)}  # fmt: skip

NORMALIZED = {"env__normalize_obs": True, "env__normalize_reward": True}
STACKED = {**NORMALIZED, "env__frame_op": "concat", "env__frame_op_len": 2}

DQN = {
    "replaced": Row(q_learning("DQN")),
    "n_step_combined": Row(
        q_learning("DQN", agent__algorithm__num_step_returns=3, agent__memory__use_cer=True)
    ),
    "normalized_stacked": Row(
        q_learning(
            "DQN", **STACKED, agent__memory=PRIORITIZED, agent__algorithm__num_step_returns=3
        )
    ),
    "argmax": Row(q_learning("DQN", **pdtype("Argmax"), agent__algorithm__training_iter=2)),
    "sampled": Row(
        q_learning("DQN", **pdtype("Categorical"), agent__algorithm__action_policy="default")
    ),
}

DOUBLE_DQN = {
    "averaged": Row(
        q_learning(
            "DoubleDQN",
            **exploring("boltzmann"),
            agent__net__update_type="polyak",
            agent__net__polyak_coef=0.1,
            agent__net__update_frequency=1,
        )
    ),
    "prioritized_dueling": Row(
        q_learning(
            "DoubleDQN",
            agent__memory=PRIORITIZED,
            agent__net__type="DuelingMLPNet",
            agent__algorithm__num_step_returns=3,
        )
    ),
    "norm_layers": Row(q_learning("DoubleDQN", **NORM_LAYERS)),
    "recurrent": Row(
        q_learning("DoubleDQN", **net("RecurrentNet", RECURRENT, burn_in=2, update_frequency=64))
    ),
    "recurrent_normalized": Row(
        q_learning("DoubleDQN", **STACKED, **net("RecurrentNet", RECURRENT, update_frequency=64))
    ),
    "images": Row(
        q_learning("DoubleDQN", **IMAGES, **net("DuelingConvNet", CONV, update_frequency=64))
    ),
}

SOFT_ACTOR_CRITIC = {
    "continuous": Row(soft("SoftActorCritic", **TWO_ACTIONS)),
    "normalized": Row(soft("SoftActorCritic", **CONTINUOUS, **NORMALIZED)),
    "discrete": Row(soft("SoftActorCritic")),
    "gumbel_softmax": Row(soft("SoftActorCritic", **pdtype("GumbelSoftmax"))),
    "prioritized_symlog_delayed": Row(
        soft(
            "SoftActorCritic",
            **CONTINUOUS,
            agent__memory=PRIORITIZED,
            agent__algorithm__symlog=True,
            agent__algorithm__policy_delay=2,
        )
    ),
    "fixed_alpha": Row(soft("SoftActorCritic", agent__algorithm__fixed_alpha=0.2)),
    "entropy_penalty": Row(soft("SoftActorCritic", agent__algorithm__entropy_penalty_coef=0.5)),
    "annealed_alpha": Row(soft("SoftActorCritic", agent__algorithm__fixed_alpha=decay(0.5, 0.1))),
    "spectral_norm": Row(
        soft("SoftActorCritic", **TWO_ACTIONS, agent__algorithm__spectral_norm=True)
    ),
    "images_spectral_norm": Row(
        soft(
            "SoftActorCritic",
            **IMAGES,
            **net("ConvNet", CONV, update_type="polyak", polyak_coef=0.05),
            agent__algorithm__spectral_norm=True,
        )
    ),
}

CROSS_Q = {
    "continuous": Row(soft("CrossQ", **TWO_ACTIONS, **GENTLE)),
    "discrete": Row(soft("CrossQ", **GENTLE)),
    "images": Row(soft("CrossQ", **IMAGES, **net("ConvNet", CONV), **GENTLE)),
}

SELF_IMITATION = {
    "sil_replay_name": "PrioritizedReplay",
    "batch_size": 16,
    "max_size": 200,
}

SIL = {
    "episodes": Row(
        actor_critic(
            **{**EPISODES, "agent__memory": {"name": "OnPolicyReplay", **SELF_IMITATION}},
            agent__algorithm__name="SIL",
            env__max_t=40,
        )
    ),
    "episodes_normalized": Row(
        actor_critic(
            **{**EPISODES, "agent__memory": {"name": "OnPolicyReplay", **SELF_IMITATION}},
            **NORMALIZED,
            agent__algorithm__name="SIL",
            env__max_t=40,
        )
    ),
    "steps_combined": Row(
        actor_critic(
            **{**CONTINUOUS, "env__max_t": 6},
            agent__algorithm__name="SIL",
            agent__algorithm__training_batch_iter=2,
            agent__memory={
                "name": "OnPolicyBatchReplay",
                **SELF_IMITATION,
                "sil_replay_name": "Replay",
                "use_cer": True,
            },
        ),
        bounded=False,
    ),
}

PPOSIL = {
    "normalized": Row(
        ppo(
            **STACKED,
            agent__algorithm__name="PPOSIL",
            agent__memory={"name": "OnPolicyBatchReplay", **SELF_IMITATION},
        )
    ),
    "prioritized": Row(
        ppo(
            agent__algorithm__name="PPOSIL",
            agent__algorithm__training_batch_iter=2,
            agent__algorithm__training_iter=2,
            agent__memory={"name": "OnPolicyBatchReplay", **SELF_IMITATION},
        )
    ),
}

ALGORITHM_ROWS: dict[str, dict[str, Row]] = {
    "PPO": PPO,
    "Reinforce": REINFORCE,
    "ActorCritic": ACTOR_CRITIC,
    "SARSA": SARSA,
    "VanillaDQN": {
        "uniform": Row(
            q_learning(
                "VanillaDQN",
                agent__algorithm__update_to_data=0.25,
                agent__algorithm__training_batch_iter=1,
            )
        ),
        "prioritized": Row(q_learning("VanillaDQN", agent__memory=PRIORITIZED)),
    },
    "DQN": DQN,
    "DoubleDQN": DOUBLE_DQN,
    "SoftActorCritic": SOFT_ACTOR_CRITIC,
    "CrossQ": CROSS_Q,
    "SIL": SIL,
    "PPOSIL": PPOSIL,
    "Random": {
        "discrete": Row(random()),
        "continuous": Row(random(**CONTINUOUS)),
        "multi_discrete": Row(random(**CHOICES)),
        "multi_binary": Row(random(**BITS)),
    },
}
"""By algorithm, each kind of action space that it can act in, and whatever changes what it does."""


@dataclass(frozen=True)
class MemoryRow:
    """A memory block, with what an algorithm says of it."""

    block: Data
    horizon: int = 1
    num_steps: int = 1
    """n of n-step returns, of memories that are drawn from."""

    def layout(self, seed: int) -> MemoryLayout:
        """For three environments, observations (2,) and one action each."""
        schedule = TrainingSchedule(frequency=12, start=24, batches_per_event=2)
        plan = ReplayConfig(schedule, 0.9, self.num_steps, seed)
        i64, f32 = np.dtype(np.int64), np.dtype(np.float32)
        return MemoryLayout(self.horizon, 3, (2,), f32, (), i64, plan)


RING = {"batch_size": 8, "max_size": 60}

MEMORY_ROWS: dict[str, dict[str, MemoryRow]] = {
    "OnPolicyBatchReplay": {"steps": MemoryRow({}, horizon=5), "one": MemoryRow({}, horizon=1)},
    "OnPolicyReplay": {"episodes": MemoryRow({}, horizon=4)},
    "OnPolicyCrossEntropy": {"best_half": MemoryRow({"cross_entropy": 0.5}, horizon=4)},
    "Replay": {
        "uniform": MemoryRow(RING),
        "three_steps": MemoryRow(RING, num_steps=3),
        "combined": MemoryRow({**RING, "use_cer": True}),
    },
    "PrioritizedReplay": {
        "proportional": MemoryRow({**RING, "beta": decay(0.4, 1.0)}),
        "three_steps": MemoryRow({**RING, "use_cer": True}, num_steps=3),
    },
}
"""Each has something to learn from within 40 steps, and more than once."""


@dataclass(frozen=True)
class NetRow:
    """A net block, the shape of the observations it is for, and the widths of its heads."""

    block: Data
    obs_shape: tuple[int, ...]
    heads: tuple[int, ...] = (3, 1)
    state_around: int = 0
    """What it sees behind an observation: recurrent state and mark."""


IMAGE = (2, 12, 12)
SMOOTH = {**CONV, "hid_layers_activation": "tanh"}  # no corners, which small differences jump over
MLP = {**TANH, "hid_layers": [8, 6]}

NET_ROWS: dict[str, dict[str, NetRow]] = {
    "RecurrentNet": {
        "gru": NetRow(RECURRENT, (4,), state_around=7),
        "lstm_of_two_layers": NetRow(
            {**RECURRENT, "cell_type": "LSTM", "rnn_num_layers": 2}, (4,), state_around=25
        ),
        "rnn_alone": NetRow({**RECURRENT, "cell_type": "RNN", "fc_hid_layers": []}, (4,), (3,), 7),
    },
    "MLPNet": {
        "tanh": NetRow(MLP, (4,)),
        "relu_by_torch": NetRow({"hid_layers": [16], "hid_layers_activation": "relu"}, (4,)),
        "by_autograd": NetRow({**MLP, "hid_layers_activation": "silu"}, (4,)),
        "no_hidden_layer": NetRow({**MLP, "hid_layers": []}, (4,)),
        "layer_norm": NetRow({**MLP, "layer_norm": True}, (4,)),
        "batch_norm": NetRow({**MLP, "batch_norm": True}, (4,)),
        "batch_renorm": NetRow({**MLP, "batch_norm": "renorm"}, (4,)),
    },
    "DuelingMLPNet": {
        "tanh": NetRow(MLP, (4,), heads=(3,)),
        "batch_norm": NetRow({**MLP, "batch_norm": True}, (4,), heads=(3,)),
    },
    "HydraMLPNet": {
        "alike": NetRow({**MLP, "hid_layers": [[8], [6], [5]]}, (4,)),
        "each_its_own": NetRow({**MLP, "hid_layers": [[], [6], [[], [5, 5]]]}, (4,)),
        "nothing_shared": NetRow({**MLP, "hid_layers": [[], [], [[5], [5]]]}, (4,)),
        "batch_norm": NetRow({**MLP, "hid_layers": [[8], [6], [5]], "batch_norm": True}, (4,)),
    },
    "ConvNet": {
        "relu": NetRow(CONV, IMAGE),
        "dilated": NetRow({**CONV, "conv_hid_layers": [[4, [3, 5], 1, 2, [2, 1]]]}, IMAGE),
        "no_convolution": NetRow({**CONV, "conv_hid_layers": []}, IMAGE),
        "one_channel": NetRow(SMOOTH, (1, 12, 12)),
        "layer_norm": NetRow({**SMOOTH, "layer_norm": True}, IMAGE),
        "batch_norm": NetRow({**SMOOTH, "batch_norm": True}, IMAGE),
        "batch_renorm": NetRow({**SMOOTH, "batch_norm": "renorm"}, IMAGE),
    },
    "DuelingConvNet": {"relu": NetRow(CONV, IMAGE, heads=(3,))},
    "TorchArcNet": {
        "perceptron": NetRow({"arc": PERCEPTRON}, (4,)),
        "convolutions": NetRow({"arc": CONVOLUTIONS}, IMAGE),
        "renormalised": NetRow({"arc": RENORMALISED, "init_fn": "orthogonal_"}, (4,)),
    },
}


def built(registry: Registry) -> set[str]:
    """The names of the lab's own parts that can be loaded."""
    entries = filter(None, map(registry.get, registry.names()))
    return {e.name for e in entries if e.target is not None and e.target.startswith("slm_lab.")}


def cases(table: dict[str, dict[str, Any]], *, learning: bool = False) -> list[Any]:
    """Every row as a pytest parameter (name, variant); `learning`: only those that learn."""
    return [
        pytest.param((name, variant), id=f"{name}-{variant}")
        for name, rows in table.items()
        for variant, row in rows.items()
        if not learning or row.learns
    ]
