"""Registers the lab's own parts by name: the model of their keys, and the path of their class."""

from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.spec.schema import algorithm, memory, net


def register_builtin_parts() -> None:
    """Registers every part. Repeated calls change nothing."""
    ALGORITHMS.register("PPO", algorithm.PPOSpec, "slm_lab.agent.algorithm.ppo:PPO")
    ALGORITHMS.register("Random", algorithm.RandomSpec, "slm_lab.agent.algorithm.random:Random")
    ALGORITHMS.register(
        "Reinforce", algorithm.ReinforceSpec, "slm_lab.agent.algorithm.reinforce:Reinforce"
    )
    ALGORITHMS.register("SARSA", algorithm.SARSASpec, "slm_lab.agent.algorithm.sarsa:SARSA")
    ALGORITHMS.register(
        "ActorCritic", algorithm.ActorCriticSpec, "slm_lab.agent.algorithm.actor_critic:ActorCritic"
    )
    q_learning = "slm_lab.agent.algorithm.q_learning"
    ALGORITHMS.register("VanillaDQN", algorithm.VanillaDQNSpec, f"{q_learning}:VanillaDQN")
    ALGORITHMS.register("DQN", algorithm.DQNSpec, f"{q_learning}:DQN")
    ALGORITHMS.register("DoubleDQN", algorithm.DoubleDQNSpec, f"{q_learning}:DoubleDQN")
    sac = "slm_lab.agent.algorithm.sac"
    ALGORITHMS.register("SoftActorCritic", algorithm.SoftActorCriticSpec, f"{sac}:SoftActorCritic")
    ALGORITHMS.register("CrossQ", algorithm.CrossQSpec, f"{sac}:CrossQ")
    sil = "slm_lab.agent.algorithm.sil"
    ALGORITHMS.register("SIL", algorithm.SILSpec, f"{sil}:SIL")
    ALGORITHMS.register("PPOSIL", algorithm.PPOSILSpec, f"{sil}:PPOSIL")

    on_policy_batch = "slm_lab.agent.memory.on_policy:OnPolicyBatchReplay"
    MEMORIES.register("OnPolicyBatchReplay", memory.OnPolicyBatchReplaySpec, on_policy_batch)
    episodes = "slm_lab.agent.memory.episodes:OnPolicyReplay"
    MEMORIES.register("OnPolicyReplay", memory.OnPolicyReplaySpec, episodes)
    MEMORIES.register("OnPolicyCrossEntropy", memory.OnPolicyCrossEntropySpec, episodes)
    replay = "slm_lab.agent.memory.replay:Replay"
    MEMORIES.register("Replay", memory.ReplaySpec, replay)
    MEMORIES.register("PrioritizedReplay", memory.PrioritizedReplaySpec, replay)

    NETS.register("MLPNet", net.MLPNetSpec, "slm_lab.agent.net.mlp:MLPNet")
    NETS.register("HydraMLPNet", net.HydraMLPNetSpec, "slm_lab.agent.net.hydra:HydraMLPNet")
    dueling = "slm_lab.agent.net.dueling:DuelingNet"
    NETS.register("DuelingMLPNet", net.DuelingMLPNetSpec, dueling)
    NETS.register("ConvNet", net.ConvNetSpec, "slm_lab.agent.net.conv:ConvNet")
    NETS.register("DuelingConvNet", net.DuelingConvNetSpec, dueling)
    NETS.register("RecurrentNet", net.RecurrentNetSpec, "slm_lab.agent.net.recurrent:RecurrentNet")
    NETS.register("TorchArcNet", net.TorchArcNetSpec, "slm_lab.agent.net.torch_arc:TorchArcNet")


register_builtin_parts()
