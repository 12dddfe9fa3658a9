"""One row or more for every algorithm that is built: the input of the contract suites.

An algorithm that is registered and has no row fails in `test_table.py`.
A row is all that it needs to be covered by every suite.
`parts_table.py` has the rows of memories and nets.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from slm_lab.core.registry import Registry
from slm_lab.testing import AlgorithmCase
from tests.contract.parts_table import (
    CONV,
    CONVOLUTIONS,
    PERCEPTRON,
    RECURRENT,
    RENORMALISED,
    RESIDUAL,
    STAGES,
    TANH,
    Data,
    decay,
)
from tests.learning.probe_envs import register_probes
from tests.support import (
    actor_critic,
    ppo,
    pqn,
    q_learning,
    reinforce,
    sarsa,
    soft,
    vmpo,
)

register_probes()

CONTINUOUS = {"env__name": "Pendulum-v1", "env__max_t": 40}
TWO_ACTIONS = {"env__name": "ProbeReachPoint-v0"}
CHOICES = {"env__name": "ProbeMatchChoices-v0"}
MIXED = {"env__name": "ProbeChooseAndAim-v0"}
PARAMETRISED = {"env__name": "ProbeMoveByParameter-v0"}
BITS = {"env__name": "ProbeMatchBits-v0"}
PARTS = {"env__name": "ProbeMatchParts-v0"}
IMAGES = {"env__name": "ProbeMatchImage-v0"}
SCENE = {"env__name": "ProbeMatchScene-v0"}
AIM_IN_SCENE = {"env__name": "ProbeAimInScene-v0"}
MASKED = {
    "env__name": "ProbeTakeAllowed-v0",
    "env__action_mask": "info.action_mask",
}
MASKED_PAIR = {
    "env__name": "ProbeTakeAllowedPair-v0",
    "env__action_mask": "allowed",
}
AGENTS = {
    "env__name": "pettingzoo:tests.team",
    "env__num_envs": 2,
    "env__action_mask": "info.action_mask",
    "env__masked": True,
}
"""Four agents that leave, join and come back."""
AIMED_BY_IMAGES = {"env__name": "ProbeAimByImage-v0"}


@dataclass(frozen=True)
class Row(AlgorithmCase):
    """One way of using an algorithm: a spec with four training events or more in 400
    frames."""

    trains_alike: bool = False
    """Whether another row trains in the same way, on other spaces or with other draws
    of actions. Then its whole trainings are slow tests."""


def rows_of(make: Callable[..., Data]) -> Callable[..., Row]:
    """Makes rows of the specs that `make` makes."""

    def row(*blocks: Data, bounded: bool = True, **algorithm: Any) -> Row:
        changes = {
            f"agent__algorithm__{key}": value for key, value in algorithm.items()
        }
        for block in blocks:
            changes |= block
        return Row(make(**changes), bounded)

    return row


def alike(row: Row) -> Row:
    """The row, marked as one that trains as another does."""
    return replace(row, trains_alike=True)


def leaving(row: Row) -> Row:
    """The row, marked as one whose agents leave."""
    return replace(row, agents_leave=True)


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


def net(kind: str, block: Data, **changes: Any) -> Data:
    """Another net with the optimizer of the small specs."""
    optim = {"clip_grad_val": 0.5, "optim_spec": {"name": "GlobalAdam", "lr": 1e-3}}
    return {"agent__net": {"type": kind, **optim, **block, **changes}}


def keys_of_net(**keys: Any) -> Data:
    """Keys of the net of the small specs."""
    return {f"agent__net__{key}": value for key, value in keys.items()}


def lookahead(name: str) -> Data:
    """An optimizer inside Lookahead, three fast steps at a time."""
    return keys_of_net(
        optim_spec={"name": "Lookahead", "optimizer": name, "lr": 1e-3, "k": 3}
    )


# A bias before batch normalisation has a gradient of rounding errors. Adam would make
# steps of full size of them, and no two ways of computing could be compared.
GENTLE = keys_of_net(optim_spec={"name": "SGD", "lr": 1e-2, "momentum": 0.9})
NORM_LAYERS = {**keys_of_net(layer_norm=True, batch_norm=True), **GENTLE}
SIMBA = net("SimBaNet", RESIDUAL, optim_spec={"name": "AdamW", "lr": 1e-3})
RNN = net("RecurrentNet", RECURRENT)
FOLLOWED = {"update_type": "polyak", "polyak_coef": 0.05}
FROM_PIXELS = {**AIMED_BY_IMAGES, **net("ConvNet", CONV, **FOLLOWED)}
FROM_PIXELS_DEEP = {**AIMED_BY_IMAGES, **net("ResNet", STAGES, **FOLLOWED)}
FROM_PIXELS_BY_ARC = {
    **AIMED_BY_IMAGES,
    **net("TorchArcNet", {"arc": CONVOLUTIONS}, **FOLLOWED),
}
FREE_LOG_STD = keys_of_net(log_std_init=-0.5)
SHARED = keys_of_net(shared=True)
BY_NUMPY = {
    **keys_of_net(matmul="numpy", hid_layers=[64, 64]),
    "agent__memory__batch_size": 64,
}
HALF = keys_of_net(precision="bf16", hid_layers=[16, 16])
NORMALIZED = {"env__normalize_obs": True, "env__normalize_reward": True}
STACKED = {**NORMALIZED, "env__frame_op": "concat", "env__frame_op_len": 2}
SHORT = {"env__max_t": 40}
EPISODES: Data = {
    **SHORT,
    "agent__algorithm__lam": None,
    "agent__algorithm__training_frequency": 3,
    "agent__memory": {"name": "OnPolicyReplay"},
}
SAMPLES: Data = {"batch_size": 16, "max_size": 200}
PRIORITIZED = {
    "name": "PrioritizedReplay",
    **SAMPLES,
    "alpha": 0.6,
    "epsilon": 1e-4,
    "beta": decay(0.4, 1.0),
}
BY_PRIORITY = {"agent__memory": PRIORITIZED}
DELAYED = {"update_frequency": 64}
DROPPING = keys_of_net(critic_dropout=0.1, critic_layer_norm=True)
NOISY = {
    **keys_of_net(noisy=True),
    "agent__algorithm__action_policy": "default",
    "agent__algorithm__explore_var_spec": None,
}


ENCODERS = {
    "image": {"type": "ConvNet", **CONV, "fc_hid_layers": [4]},
    "room": {"type": "Embedding", "dim": 2},
}
ENCODED = keys_of_net(parts=ENCODERS)
REMEMBERED_SIGN = {"sign": {"type": "RecurrentNet", **RECURRENT}}
STACKED_SCENE = {
    **SCENE,
    "env__normalize_obs": True,
    "env__frame_op": "concat",
    "env__frame_op_len": 2,
}


def past(memory: str, **keys: Any) -> Data:
    """An on-policy memory, with a replay memory for self-imitation."""
    replay = {"sil_replay_name": "PrioritizedReplay", **SAMPLES, **keys}
    return {"agent__memory": {"name": memory, **replay}}


PPO = rows_of(ppo)
REINFORCE = rows_of(reinforce)
A2C = rows_of(actor_critic)
SARSA = rows_of(sarsa)
PQN = rows_of(pqn)
VMPO = rows_of(vmpo)
SPARSE = {"agent__algorithm__training_frequency": 32}
"""Twelve training events in a run show as much as more would."""
VANILLA, DQN, DOUBLE, MUNCHAUSEN, C51, QRDQN, IQN = (
    rows_of(partial(q_learning, name, **SPARSE))
    for name in (
        "VanillaDQN",
        "DQN",
        "DoubleDQN",
        "MunchausenDQN",
        "C51",
        "QRDQN",
        "IQN",
    )
)
SAC, REDQ, TQC, CROSS_Q, TD3 = (
    rows_of(partial(soft, name, **SPARSE))
    for name in ("SoftActorCritic", "REDQ", "TQC", "CrossQ", "TD3")
)
SIL, PPOSIL = partial(A2C, name="SIL"), partial(PPO, name="PPOSIL")

ALGORITHM_ROWS: dict[str, dict[str, Row]] = {
    "PPO": {
        "separate": PPO(),
        "scheduled_numbers": PPO(
            gamma=decay(0.9, 0.99), lam=decay(0.8, 1.0), val_loss_coef=decay(1.0, 0.5)
        ),
        "changing_environment": PPO(
            {**CONTINUOUS, "env__g": decay(10.0, 2.0)}, bounded=False
        ),
        "shared": PPO(SHARED),
        "continuous": PPO(CONTINUOUS, NORMALIZED, bounded=False),
        "free_log_std": alike(PPO(TWO_ACTIONS, FREE_LOG_STD, bounded=False)),
        "robust": PPO(TWO_ACTIONS, FREE_LOG_STD, rpo_alpha=0.5, bounded=False),
        "beta": alike(PPO(TWO_ACTIONS, pdtype("Beta"))),
        "log_normal": alike(PPO(TWO_ACTIONS, pdtype("LogNormal"), bounded=False)),
        "multivariate": alike(
            PPO(TWO_ACTIONS, SHARED, pdtype("MultivariateNormal"), bounded=False)
        ),
        "multivariate_free_log_std": PPO(
            TWO_ACTIONS, FREE_LOG_STD, pdtype("MultivariateNormal"), bounded=False
        ),
        "gumbel_softmax": alike(PPO(pdtype("GumbelSoftmax"))),
        "multi_discrete": PPO(CHOICES),
        "multi_binary": alike(PPO(BITS)),
        "mixed": PPO(MIXED, FREE_LOG_STD, NORMALIZED, bounded=False),
        "mixed_shared": alike(PPO(PARAMETRISED, SHARED, bounded=False)),
        "mixed_recurrent": alike(PPO(MIXED, RNN, bounded=False)),
        "dict_obs": PPO(PARTS, {"env__normalize_obs": ["sign"]}),
        "scene": PPO(STACKED_SCENE),
        "scene_by_roles": PPO(
            SCENE,
            keys_of_net(obs=["image", "sign"], critic_obs=["room"], critic_parts={}),
        ),
        "scene_with_a_recurrent_part": PPO(
            SCENE,
            keys_of_net(
                obs=["image", "sign"],
                critic_obs=["room", "sign"],
                parts=REMEMBERED_SIGN,
            ),
        ),
        "scene_recurrent": PPO(SCENE, ENCODED, RNN, keys_of_net(parts=ENCODERS)),
        "images_recurrent": alike(
            PPO(IMAGES, net("RecurrentNet", RECURRENT, shared=True))
        ),
        "masked": PPO(MASKED),
        "masked_shared_epsilon_greedy": alike(
            PPO(MASKED, SHARED, NORMALIZED, exploring("epsilon_greedy"))
        ),
        "masked_choices": PPO(MASKED_PAIR),
        "agents": leaving(PPO(AGENTS, NORMALIZED)),
        "agents_recurrent": alike(leaving(PPO(AGENTS, RNN))),
        "masked_recurrent": alike(PPO(MASKED_PAIR, RNN)),
        "random_policy": alike(PPO(TWO_ACTIONS, action_policy="random")),
        "epsilon_greedy": PPO(exploring("epsilon_greedy")),
        "boltzmann": alike(PPO(exploring("boltzmann"))),
        "acrobot_max_t": PPO({"env__name": "Acrobot-v1", "env__max_t": 30}),
        "normalized_targets": PPO(normalize_v_targets=True, clip_vloss=True),
        "normalized_targets_shared": PPO(SHARED, normalize_v_targets=True),
        "percentile_symlog": PPO(normalize_advantages="percentile", symlog=True),
        "rmsprop_scheduled": PPO(
            keys_of_net(
                optim_spec={"name": "GlobalRMSprop", "lr": 1e-3},
                lr_scheduler_spec={"name": "LinearToZero", "frame": 600},
            )
        ),
        "torch_optimizer": PPO(
            keys_of_net(
                optim_spec={"name": "NAdam", "lr": 1e-3},
                lr_scheduler_spec={"name": "StepLR", "step_size": 20},
            )
        ),
        "lookahead": PPO(lookahead("RAdam")),
        "norm_layers": PPO(NORM_LAYERS),
        "images": PPO(IMAGES, net("ConvNet", CONV)),
        "recurrent": PPO(RNN),
        "recurrent_shared_lstm": PPO(
            net("RecurrentNet", RECURRENT, shared=True, cell_type="LSTM")
        ),
        "hydra": PPO(
            net(
                "HydraMLPNet",
                {**TANH, "hid_layers": [[8], [6], [[5], []]]},
                shared=True,
            )
        ),
        "residual": PPO(net("SimBaNet", RESIDUAL, shared=True)),
        "half_precision": PPO(HALF),
        "half_precision_autograd": alike(PPO(TWO_ACTIONS, HALF, pdtype("Beta"))),
        "arc": PPO(net("TorchArcNet", {"arc": PERCEPTRON, "critic_arc": RENORMALISED})),
        "arc_images": alike(
            PPO(IMAGES, net("TorchArcNet", {"arc": CONVOLUTIONS}, shared=True))
        ),
    },
    "Reinforce": {
        "recurrent": REINFORCE(RNN),
        "discrete": REINFORCE(),
        "masked": alike(REINFORCE(MASKED)),
        "continuous": alike(REINFORCE(CONTINUOUS, {"env__max_t": 20}, bounded=False)),
        "multi_discrete": alike(REINFORCE(CHOICES)),
        "multi_binary": alike(REINFORCE(BITS, pdtype("Bernoulli"))),
        "mixed": alike(REINFORCE(PARAMETRISED, bounded=False)),
        # a rank may wait long for the end of an episode
        "epsilon_greedy": replace(
            alike(REINFORCE(exploring("epsilon_greedy"))), max_frame=800
        ),
        "cross_entropy": REINFORCE(
            {"agent__memory": {"name": "OnPolicyCrossEntropy", "cross_entropy": 0.5}},
            training_frequency=3,
        ),
    },
    "ActorCritic": {
        "recurrent": A2C(RNN),
        "gae": A2C(),
        "masked": alike(A2C(MASKED_PAIR, SHARED)),
        "scheduled_numbers": alike(A2C(gamma=decay(0.9, 0.99), lam=decay(0.8, 1.0))),
        "n_step": A2C(SHARED, lam=None, num_step_returns=3),
        "episodes": A2C(EPISODES),
        "continuous": alike(A2C(CONTINUOUS, bounded=False)),
        "beta": alike(A2C(TWO_ACTIONS, pdtype("Beta"))),
        "multi_discrete": alike(A2C(CHOICES, pdtype("MultiCategorical"))),
        "multi_binary": alike(A2C(BITS)),
        "mixed": alike(A2C(MIXED, pdtype("Product"), bounded=False)),
    },
    "SARSA": {
        "epsilon_greedy": SARSA(),
        "masked": alike(SARSA(MASKED)),
        "boltzmann_episodes": SARSA(
            exploring("boltzmann"),
            {**SHORT, "agent__memory": {"name": "OnPolicyReplay"}},
            training_frequency=3,
        ),
        "dueling": alike(SARSA(keys_of_net(type="DuelingMLPNet"))),
        "n_step": SARSA(num_step_returns=3),
    },
    "PQN": {
        "layer_norm": PQN(),
        "masked": alike(PQN(MASKED)),
        "written_out": PQN(keys_of_net(layer_norm=False), lam=1.0),
        "boltzmann_normalized": PQN(STACKED, exploring("boltzmann"), lam=0.0),
        "batch_norm": PQN(keys_of_net(layer_norm=False, batch_norm=True), GENTLE),
        "radam": PQN(keys_of_net(optim_spec={"name": "RAdam", "lr": 1e-3})),
        "dueling": alike(PQN(keys_of_net(type="DuelingMLPNet"))),
        "images": PQN(IMAGES, net("ConvNet", CONV, layer_norm=True)),
        "recurrent": PQN(RNN),
        "half_precision": PQN(HALF),
    },
    "VMPO": {
        "separate": VMPO(),
        "masked": alike(VMPO(MASKED_PAIR)),
        "scheduled_numbers": VMPO(
            TWO_ACTIONS,
            eps_eta=decay(0.5, 0.01),
            eps_alpha=decay(0.1, 0.001),
            eps_alpha_cov=decay(0.01, 0.0001),
            bounded=False,
        ),
        "continuous": VMPO(CONTINUOUS, NORMALIZED, bounded=False),
        "free_log_std": VMPO(TWO_ACTIONS, FREE_LOG_STD, dual_lr=0.1, bounded=False),
        "normalized_targets_shared": VMPO(SHARED, normalize_v_targets=True),
        "beta": alike(VMPO(TWO_ACTIONS, pdtype("Beta"))),
        "log_normal": alike(VMPO(TWO_ACTIONS, pdtype("LogNormal"), bounded=False)),
        "multivariate": VMPO(TWO_ACTIONS, pdtype("MultivariateNormal"), bounded=False),
        "multi_discrete": VMPO(CHOICES),
        "multi_binary": alike(VMPO(BITS)),
        "mixed": VMPO(MIXED, bounded=False),
        "norm_layers": VMPO(NORM_LAYERS),
        "images": VMPO(IMAGES, net("ConvNet", CONV)),
        "recurrent": VMPO(RNN),
        "half_precision": VMPO(HALF),
    },
    "VanillaDQN": {
        "uniform": VANILLA(update_to_data=0.25, training_batch_iter=1),
        "prioritized": VANILLA(BY_PRIORITY),
    },
    "DQN": {
        "replaced": DQN(),
        "masked": DQN(MASKED, NORMALIZED, BY_PRIORITY, num_step_returns=3),
        "agents": alike(leaving(DQN(AGENTS, STACKED, num_step_returns=3))),
        "scene": DQN(STACKED_SCENE, BY_PRIORITY, ENCODED),
        "scheduled_numbers": DQN(
            {"agent__memory": {**PRIORITIZED, "alpha": decay(0.2, 0.8)}},
            keys_of_net(update_type="polyak", polyak_coef=decay(0.5, 0.05)),
            gamma=decay(0.9, 0.99),
            num_step_returns=2,
        ),
        "n_step_combined": DQN({"agent__memory__use_cer": True}, num_step_returns=3),
        "normalized_stacked": DQN(STACKED, BY_PRIORITY, num_step_returns=3),
        "argmax": DQN(pdtype("Argmax"), training_iter=2),
        "sampled": alike(DQN(pdtype("Categorical"), action_policy="default")),
        "noisy": DQN(NOISY),
        "resets": DQN(BY_PRIORITY, lookahead("GlobalAdam"), reset_frequency=120),
    },
    "DoubleDQN": {
        "averaged": DOUBLE(
            exploring("boltzmann"),
            keys_of_net(update_type="polyak", polyak_coef=0.1, update_frequency=1),
        ),
        "masked_recurrent": alike(
            DOUBLE(MASKED, net("RecurrentNet", RECURRENT, **DELAYED))
        ),
        "prioritized_dueling": DOUBLE(
            BY_PRIORITY, keys_of_net(type="DuelingMLPNet"), num_step_returns=3
        ),
        "norm_layers": DOUBLE(NORM_LAYERS),
        "recurrent": DOUBLE(net("RecurrentNet", RECURRENT, burn_in=2, **DELAYED)),
        "recurrent_normalized": DOUBLE(
            STACKED, net("RecurrentNet", RECURRENT, **DELAYED)
        ),
        "scene_with_a_recurrent_part": alike(
            DOUBLE(
                STACKED_SCENE,
                keys_of_net(
                    parts={"sign": {**REMEMBERED_SIGN["sign"], "burn_in": 2}}, **DELAYED
                ),
            )
        ),
        "images": DOUBLE(IMAGES, net("DuelingConvNet", CONV, **DELAYED)),
        "images_half_precision": alike(
            DOUBLE(IMAGES, net("DuelingConvNet", CONV, precision="bf16", **DELAYED))
        ),
    },
    "C51": {
        "plain": C51(num_atoms=11, v_min=0.0, v_max=20.0),
        "masked": alike(C51(MASKED, num_atoms=11, double=True)),
        "rainbow": C51(
            BY_PRIORITY,
            NOISY,
            keys_of_net(type="DuelingMLPNet", hid_layers=[16, 16]),
            double=True,
            num_step_returns=3,
        ),
        "images": C51(IMAGES, net("DuelingConvNet", CONV, **DELAYED), num_atoms=11),
        "images_rainbow_half_precision": alike(
            C51(
                IMAGES,
                net("DuelingConvNet", CONV, precision="bf16", **DELAYED),
                NOISY,
                num_atoms=11,
                double=True,
            )
        ),
    },
    "QRDQN": {
        "plain": QRDQN(num_quantiles=8),
        "masked": alike(QRDQN(MASKED, num_quantiles=4)),
        "prioritized": QRDQN(
            STACKED, BY_PRIORITY, num_quantiles=5, kappa=0.0, double=True
        ),
        "half_precision": QRDQN(HALF, num_quantiles=8),
        "residual": alike(QRDQN(SIMBA, num_quantiles=8)),
    },
    "IQN": {
        "residual": alike(IQN(SIMBA, num_quantiles=4)),
        "plain": IQN(num_quantiles=4, num_samples=6, num_target_samples=5),
        "scene": alike(IQN(SCENE, ENCODED, num_quantiles=4)),
        "rainbow": IQN(
            BY_PRIORITY,
            NOISY,
            keys_of_net(type="DuelingMLPNet", hid_layers=[16, 16]),
            double=True,
            num_step_returns=3,
            num_quantiles=4,
            num_samples=6,
        ),
        "images": IQN(IMAGES, net("ConvNet", CONV, **DELAYED), num_quantiles=4),
        "half_precision": IQN(HALF, num_quantiles=4),
    },
    "MunchausenDQN": {
        "plain": MUNCHAUSEN(),
        "masked": alike(MUNCHAUSEN(MASKED)),
        "prioritized_dueling": MUNCHAUSEN(
            BY_PRIORITY, keys_of_net(type="DuelingMLPNet"), munchausen_tau=0.5
        ),
    },
    "SoftActorCritic": {
        "continuous": SAC(TWO_ACTIONS),
        "normalized": SAC(CONTINUOUS, NORMALIZED),
        "discrete": SAC(),
        "masked": SAC(MASKED),
        "scene": SAC(AIM_IN_SCENE, ENCODED),
        "gumbel_softmax": SAC(pdtype("GumbelSoftmax")),
        "prioritized_symlog_delayed": SAC(
            CONTINUOUS, BY_PRIORITY, symlog=True, policy_delay=2
        ),
        "fixed_alpha": SAC(fixed_alpha=0.2),
        "scheduled_numbers": SAC(
            TWO_ACTIONS, target_entropy=decay(0.5, -2.0), gamma=decay(0.9, 0.99)
        ),
        "entropy_penalty": SAC(entropy_penalty_coef=0.5),
        "annealed_alpha": SAC(fixed_alpha=decay(0.5, 0.1)),
        "spectral_norm": SAC(TWO_ACTIONS, spectral_norm=True),
        "n_step_three_critics": SAC(TWO_ACTIONS, num_critics=3, num_step_returns=3),
        "half_precision": SAC(TWO_ACTIONS, HALF),
        "lookahead_half_precision": SAC(TWO_ACTIONS, HALF, lookahead("GlobalAdam")),
        "residual": SAC(
            CONTINUOUS, NORMALIZED, net("SimBaNet", RESIDUAL, critic_width=12)
        ),
        "resets": SAC(TWO_ACTIONS, reset_frequency=120),
        "dropout": alike(SAC(DROPPING, BY_PRIORITY, keys_of_net(critic_dropout=0.5))),
        "wide_by_numpy": SAC(TWO_ACTIONS, BY_NUMPY),
        "pixels": SAC(FROM_PIXELS),
        "pixels_deep_half_precision": alike(
            SAC(
                AIMED_BY_IMAGES,
                net("ResNet", STAGES, precision="bf16", **FOLLOWED),
            )
        ),
        "pixels_by_arc_spectral_norm": alike(
            SAC(FROM_PIXELS_BY_ARC, spectral_norm=True)
        ),
        "images_spectral_norm": alike(
            SAC(
                IMAGES,
                net("ConvNet", CONV, **FOLLOWED),
                spectral_norm=True,
            )
        ),
    },
    "REDQ": {
        "continuous": REDQ(TWO_ACTIONS, num_critics=4, policy_delay=2),
        "discrete": REDQ(num_critics=3, policy_delay=2),
        "droq": REDQ(TWO_ACTIONS, DROPPING, num_critics=2, policy_delay=2),
        "prioritized_symlog_n_step": alike(
            REDQ(
                CONTINUOUS,
                BY_PRIORITY,
                num_critics=3,
                num_target_critics=1,
                policy_delay=1,
                symlog=True,
                num_step_returns=3,
            )
        ),
        "spectral_norm": alike(
            REDQ(TWO_ACTIONS, num_critics=3, policy_delay=2, spectral_norm=True)
        ),
        "half_precision": REDQ(TWO_ACTIONS, HALF, num_critics=3, policy_delay=2),
        "pixels": alike(REDQ(FROM_PIXELS, num_critics=3, policy_delay=2)),
        "droq_pixels": alike(
            REDQ(
                AIMED_BY_IMAGES,
                net("ConvNet", CONV, critic_dropout=0.1, **FOLLOWED),
                num_critics=2,
                policy_delay=2,
            )
        ),
    },
    "TQC": {
        "continuous": TQC(TWO_ACTIONS, num_critics=3, num_quantiles=5),
        "prioritized_n_step": alike(
            TQC(
                CONTINUOUS,
                NORMALIZED,
                BY_PRIORITY,
                num_critics=2,
                num_quantiles=4,
                num_step_returns=3,
                policy_delay=2,
            )
        ),
        "norm_layers_spectral_norm": alike(
            TQC(TWO_ACTIONS, NORM_LAYERS, num_critics=2, spectral_norm=True)
        ),
        "pixels": alike(TQC(FROM_PIXELS, num_critics=2, num_quantiles=5)),
        "half_precision_dropout": TQC(
            TWO_ACTIONS, HALF, DROPPING, num_critics=2, num_quantiles=5
        ),
    },
    "CrossQ": {
        "continuous": CROSS_Q(TWO_ACTIONS, GENTLE),
        "resets": CROSS_Q(TWO_ACTIONS, GENTLE, reset_frequency=120),
        "discrete": alike(CROSS_Q(GENTLE)),
        "images": CROSS_Q(IMAGES, net("ConvNet", CONV), GENTLE),
        "pixels": CROSS_Q(AIMED_BY_IMAGES, net("ConvNet", CONV), GENTLE),
    },
    "TD3": {
        "continuous": TD3(TWO_ACTIONS),
        "scheduled_numbers": alike(TD3(TWO_ACTIONS, target_noise=decay(0.2, 0.0))),
        "normalized": TD3(CONTINUOUS, NORMALIZED, explore_var_spec=decay(0.5, 0.1)),
        "ddpg": TD3(
            CONTINUOUS,
            BY_PRIORITY,
            num_critics=1,
            policy_delay=1,
            target_noise=0.0,
            num_step_returns=3,
        ),
        "many_critics_symlog": TD3(TWO_ACTIONS, num_critics=3, symlog=True),
        "replaced_targets": TD3(
            TWO_ACTIONS, keys_of_net(update_type="replace", update_frequency=64)
        ),
        "half_precision": TD3(TWO_ACTIONS, HALF, pdtype("Deterministic")),
        "pixels": TD3(FROM_PIXELS_DEEP),
        "norm_layers": TD3(TWO_ACTIONS, NORM_LAYERS),
        "residual_half_precision": alike(
            TD3(TWO_ACTIONS, net("SimBaNet", RESIDUAL, precision="bf16"))
        ),
        "dropout": alike(TD3(TWO_ACTIONS, DROPPING)),
    },
    "SIL": {
        "episodes": SIL(EPISODES, past("OnPolicyReplay")),
        "episodes_normalized": SIL(EPISODES, past("OnPolicyReplay"), NORMALIZED),
        "steps_combined": SIL(
            # costs alone, as Pendulum's, are not imitated
            {"env__name": "ProbeNearPoint-v0"},
            past("OnPolicyBatchReplay", sil_replay_name="Replay", use_cer=True),
            training_batch_iter=2,
            bounded=False,
        ),
    },
    "PPOSIL": {
        "normalized": PPOSIL(STACKED, past("OnPolicyBatchReplay")),
        "prioritized": PPOSIL(
            past("OnPolicyBatchReplay"), training_batch_iter=2, training_iter=2
        ),
        "mixed": alike(
            PPOSIL(PARAMETRISED, past("OnPolicyBatchReplay"), bounded=False)
        ),
    },
    "Random": {
        "discrete": Row(random()),
        "continuous": alike(Row(random(**CONTINUOUS))),
        "multi_discrete": alike(Row(random(**CHOICES))),
        "multi_binary": alike(Row(random(**BITS))),
        "mixed": alike(Row(random(**MIXED))),
    },
}
"""By algorithm: its kinds of action spaces, and the keys that change what it does."""


def built(registry: Registry) -> set[str]:
    """The names of the lab's own parts that can be loaded."""
    entries = filter(None, map(registry.get, registry.names()))
    return {
        e.name
        for e in entries
        if e.target is not None and e.target.startswith("slm_lab.")
    }


def flat(table: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The rows of a table as the cases of a contract."""
    return {
        f"{name}-{variant}": row
        for name, rows in table.items()
        for variant, row in rows.items()
    }


FIRST = {f"{name}-{next(iter(rows))}" for name, rows in ALGORITHM_ROWS.items()}
"""The first row of each algorithm."""


def cases(*, learning: bool = False, later: str | None = None) -> list[Any]:
    """Every row of an algorithm as a pytest parameter; `learning`: only those that
    learn. `later` marks all but the first row of an algorithm; of these, rows that
    train alike are slow."""
    parameters = []
    for name, row in flat(ALGORITHM_ROWS).items():
        if learning and not row.learns:
            continue
        marks = []
        if later is not None and name not in FIRST:
            mark = "slow" if row.trains_alike else later
            marks = [getattr(pytest.mark, mark)]
        parameters.append(pytest.param(row, id=name, marks=marks))
    return parameters
