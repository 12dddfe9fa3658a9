"""Registers the lab's own parts by name: the model of their keys, and the path of their
class."""

from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.spec.schema import (
    algorithm,
    arc,
    conv,
    memory,
    mlp,
    policy_gradient,
    q_learning,
    recurrent,
    replay_actor_critic,
    simba,
)

PARTS = (
    (ALGORITHMS, "PPO", policy_gradient.PPOSpec, "algorithm.ppo:PPO"),
    (ALGORITHMS, "VMPO", policy_gradient.VMPOSpec, "algorithm.vmpo:VMPO"),
    (ALGORITHMS, "Random", algorithm.RandomSpec, "algorithm.random:Random"),
    (
        ALGORITHMS,
        "Reinforce",
        policy_gradient.ReinforceSpec,
        "algorithm.reinforce:Reinforce",
    ),
    (ALGORITHMS, "SARSA", q_learning.SARSASpec, "algorithm.sarsa:SARSA"),
    (ALGORITHMS, "PQN", q_learning.PQNSpec, "algorithm.pqn:PQN"),
    (
        ALGORITHMS,
        "ActorCritic",
        policy_gradient.ActorCriticSpec,
        "algorithm.actor_critic:ActorCritic",
    ),
    (
        ALGORITHMS,
        "VanillaDQN",
        q_learning.VanillaDQNSpec,
        "algorithm.q_learning:VanillaDQN",
    ),
    (ALGORITHMS, "DQN", q_learning.DQNSpec, "algorithm.q_learning:DQN"),
    (
        ALGORITHMS,
        "DoubleDQN",
        q_learning.DoubleDQNSpec,
        "algorithm.q_learning:DoubleDQN",
    ),
    (
        ALGORITHMS,
        "SoftActorCritic",
        replay_actor_critic.SoftActorCriticSpec,
        "algorithm.sac:SoftActorCritic",
    ),
    (ALGORITHMS, "CrossQ", replay_actor_critic.CrossQSpec, "algorithm.sac:CrossQ"),
    (ALGORITHMS, "C51", q_learning.C51Spec, "algorithm.q_learning:DistributionalDQN"),
    (
        ALGORITHMS,
        "QRDQN",
        q_learning.QRDQNSpec,
        "algorithm.q_learning:DistributionalDQN",
    ),
    (ALGORITHMS, "IQN", q_learning.IQNSpec, "algorithm.q_learning:DistributionalDQN"),
    (
        ALGORITHMS,
        "MunchausenDQN",
        q_learning.MunchausenDQNSpec,
        "algorithm.q_learning:MunchausenDQN",
    ),
    (ALGORITHMS, "REDQ", replay_actor_critic.REDQSpec, "algorithm.sac:REDQ"),
    (ALGORITHMS, "TQC", replay_actor_critic.TQCSpec, "algorithm.sac:TQC"),
    (ALGORITHMS, "TD3", replay_actor_critic.TD3Spec, "algorithm.td3:TD3"),
    (ALGORITHMS, "SIL", policy_gradient.SILSpec, "algorithm.sil:SIL"),
    (ALGORITHMS, "PPOSIL", policy_gradient.PPOSILSpec, "algorithm.sil:PPOSIL"),
    (
        MEMORIES,
        "OnPolicyBatchReplay",
        memory.OnPolicyBatchReplaySpec,
        "memory.on_policy:OnPolicyBatchReplay",
    ),
    (
        MEMORIES,
        "OnPolicyReplay",
        memory.OnPolicyReplaySpec,
        "memory.episodes:OnPolicyReplay",
    ),
    (
        MEMORIES,
        "OnPolicyCrossEntropy",
        memory.OnPolicyCrossEntropySpec,
        "memory.episodes:OnPolicyReplay",
    ),
    (MEMORIES, "Replay", memory.ReplaySpec, "memory.replay:Replay"),
    (
        MEMORIES,
        "PrioritizedReplay",
        memory.PrioritizedReplaySpec,
        "memory.replay:Replay",
    ),
    (NETS, "MLPNet", mlp.MLPNetSpec, "net.mlp:MLPNet"),
    (NETS, "HydraMLPNet", mlp.HydraMLPNetSpec, "net.mlp:HydraMLPNet"),
    (NETS, "DuelingMLPNet", mlp.DuelingMLPNetSpec, "net.dueling:DuelingNet"),
    (NETS, "ConvNet", conv.ConvNetSpec, "net.body:BodyNet"),
    (NETS, "DuelingConvNet", conv.DuelingConvNetSpec, "net.dueling:DuelingNet"),
    (NETS, "ResNet", conv.ResNetSpec, "net.body:BodyNet"),
    (NETS, "SimBaNet", simba.SimBaNetSpec, "net.body:BodyNet"),
    (NETS, "RecurrentNet", recurrent.RecurrentNetSpec, "net.recurrent:RecurrentNet"),
    (NETS, "TorchArcNet", arc.TorchArcNetSpec, "net.body:BodyNet"),
)

for _registry, _name, _params, _target in PARTS:
    _registry.register(_name, _params, f"slm_lab.agent.{_target}")
