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

ALGORITHM_PARTS = {
    "PPO": (policy_gradient.PPOSpec, "ppo:PPO"),
    "VMPO": (policy_gradient.VMPOSpec, "vmpo:VMPO"),
    "Random": (algorithm.RandomSpec, "random:Random"),
    "Reinforce": (policy_gradient.ReinforceSpec, "reinforce:Reinforce"),
    "SARSA": (q_learning.SARSASpec, "sarsa:SARSA"),
    "PQN": (q_learning.PQNSpec, "pqn:PQN"),
    "ActorCritic": (policy_gradient.ActorCriticSpec, "actor_critic:ActorCritic"),
    "VanillaDQN": (q_learning.VanillaDQNSpec, "q_learning:VanillaDQN"),
    "DQN": (q_learning.DQNSpec, "q_learning:DQN"),
    "DoubleDQN": (q_learning.DoubleDQNSpec, "q_learning:DoubleDQN"),
    "SoftActorCritic": (replay_actor_critic.SoftActorCriticSpec, "sac:SoftActorCritic"),
    "CrossQ": (replay_actor_critic.CrossQSpec, "sac:CrossQ"),
    "C51": (q_learning.C51Spec, "q_learning:DistributionalDQN"),
    "QRDQN": (q_learning.QRDQNSpec, "q_learning:DistributionalDQN"),
    "IQN": (q_learning.IQNSpec, "q_learning:DistributionalDQN"),
    "MunchausenDQN": (q_learning.MunchausenDQNSpec, "q_learning:MunchausenDQN"),
    "REDQ": (replay_actor_critic.REDQSpec, "sac:REDQ"),
    "TQC": (replay_actor_critic.TQCSpec, "sac:TQC"),
    "TD3": (replay_actor_critic.TD3Spec, "td3:TD3"),
    "SIL": (policy_gradient.SILSpec, "sil:SIL"),
    "PPOSIL": (policy_gradient.PPOSILSpec, "sil:PPOSIL"),
}

MEMORY_PARTS = {
    "OnPolicyBatchReplay": (
        memory.OnPolicyBatchReplaySpec,
        "on_policy:OnPolicyBatchReplay",
    ),
    "OnPolicyReplay": (memory.OnPolicyReplaySpec, "episodes:OnPolicyReplay"),
    "OnPolicyCrossEntropy": (
        memory.OnPolicyCrossEntropySpec,
        "episodes:OnPolicyReplay",
    ),
    "Replay": (memory.ReplaySpec, "replay:Replay"),
    "PrioritizedReplay": (memory.PrioritizedReplaySpec, "replay:Replay"),
}

NET_PARTS = {
    "MLPNet": (mlp.MLPNetSpec, "mlp:MLPNet"),
    "HydraMLPNet": (mlp.HydraMLPNetSpec, "mlp:HydraMLPNet"),
    "DuelingMLPNet": (mlp.DuelingMLPNetSpec, "dueling:DuelingNet"),
    "ConvNet": (conv.ConvNetSpec, "body:BodyNet"),
    "DuelingConvNet": (conv.DuelingConvNetSpec, "dueling:DuelingNet"),
    "ResNet": (conv.ResNetSpec, "body:BodyNet"),
    "SimBaNet": (simba.SimBaNetSpec, "body:BodyNet"),
    "RecurrentNet": (recurrent.RecurrentNetSpec, "recurrent:RecurrentNet"),
    "TorchArcNet": (arc.TorchArcNetSpec, "body:BodyNet"),
}

for _registry, _folder, _parts in (
    (ALGORITHMS, "algorithm", ALGORITHM_PARTS),
    (MEMORIES, "memory", MEMORY_PARTS),
    (NETS, "net", NET_PARTS),
):
    for _name, (_params, _target) in _parts.items():
        _registry.register(_name, _params, f"slm_lab.agent.{_folder}.{_target}")
