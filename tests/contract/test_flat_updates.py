"""N updates through the flat vector equal N updates of each parameter by torch.optim."""

import pytest
import torch
from pandas.testing import assert_frame_equal
from torch import nn

from slm_lab.agent.net import build as net_build
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.lr_schedule import build_learning_rate
from slm_lab.agent.optim.optimizer import Optimizer
from tests.support import actor_critic, parse, ppo, reinforce, rows, run_session


class PerParameterOptimizer(Optimizer):
    """What everybody writes: zero_grad, backward, clip_grad_norm_, step, parameter by parameter."""

    def __init__(self, spec, flat):
        args = dict(spec.optim_spec.args)
        rate = build_learning_rate(args["lr"], None, {})
        super().__init__(flat, None, rate, None, None)
        self.parameters = flat.views
        for parameter in self.parameters:  # off the flat vector, each with storage of its own
            parameter.data = parameter.data.clone()
            parameter.grad = None
        kind = getattr(torch.optim, spec.optim_spec.name.removeprefix("Global"))
        fused = {"fused": True} if kind is torch.optim.Adam else {}
        self.optimizer = kind(self.parameters, **args, **fused)
        self.clip = spec.clip_grad_val

    def backward(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        return loss.item(), nn.utils.clip_grad_norm_(self.parameters, self.clip).item()

    def apply(self):
        self.optimizer.step()

    def vector(self):
        return nn.utils.parameters_to_vector(self.parameters).detach()

    def state_dict(self):
        return {}


SPECS = {
    "adam": ppo(),
    "adam_shared": ppo(agent__net__shared=True),
    "rmsprop": ppo(agent__net__optim_spec={"name": "GlobalRMSprop", "lr": 1e-3}),
    "continuous": ppo(env__name="Pendulum-v1", agent__net__log_std_init=0.0),
    "actor_critic": actor_critic(),
    "reinforce": reinforce(),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_whole_run_equals_the_per_parameter_run(name, tmp_path, monkeypatch):
    spec = parse(SPECS[name])
    flat_run = run_session(spec, tmp_path / "flat")

    def per_parameter(net_spec, flat: FlatParameters, sync):
        return PerParameterOptimizer(net_spec, flat)

    monkeypatch.setattr(net_build, "build_optimizer", per_parameter)
    reference = run_session(spec, tmp_path / "reference")

    for unit, optimizer in reference.agent.learner.network.units.optimizers.items():
        expected = optimizer.vector()
        torch.testing.assert_close(flat_run.agent.learner.flats[unit].vector, expected)
    assert flat_run.agent.learner.opt_step > 10
    # The two global norms are summed in different orders, so the last bits may differ.
    assert_frame_equal(rows(flat_run), rows(reference), rtol=1e-4, atol=1e-6)
