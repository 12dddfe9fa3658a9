"""A part registered from outside, under a model that inherits the keys of one of ours."""

from slm_lab.agent.algorithm.ppo import PPO
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.core.registry import ALGORITHMS, NETS
from slm_lab.spec.schema.algorithm import PPOSpec
from slm_lab.spec.schema.net import MLPNetSpec
from tests.support import parse, ppo, run_session


class OwnNetSpec(MLPNetSpec):
    type: str = "OwnNet"


class OwnAlgorithmSpec(PPOSpec):
    name: str = "OwnAlgorithm"


class OwnNet(MLPNet):
    pass


class OwnAlgorithm(PPO):
    pass


def test_a_net_and_an_algorithm_from_outside_train_like_our_own(tmp_path, monkeypatch):
    monkeypatch.setattr(NETS, "_entries", dict(NETS._entries))
    monkeypatch.setattr(ALGORITHMS, "_entries", dict(ALGORITHMS._entries))
    NETS.register("OwnNet", OwnNetSpec, f"{__name__}:OwnNet")
    ALGORITHMS.register("OwnAlgorithm", OwnAlgorithmSpec, f"{__name__}:OwnAlgorithm")
    spec = parse(ppo(agent__net__type="OwnNet", agent__algorithm__name="OwnAlgorithm"))
    session = run_session(spec, tmp_path)
    assert type(session.agent.learner).__name__ == "OwnAlgorithm"
    assert type(session.agent.learner.network._actor.net).__name__ == "OwnNet"
    assert session.agent.learner.opt_step > 0
