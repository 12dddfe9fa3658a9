"""N updates through the flat vector equal N by torch.optim and autograd, parameter by
parameter."""

import sys
from functools import partial

import pytest
import torch
from pandas.testing import assert_frame_equal
from torch import nn

from slm_lab.agent.fast import choose
from slm_lab.agent.from_spec.networks import build_optimizer
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import (
    LearningRate,
    Optimizer,
    StepReport,
    build_learning_rate,
)
from slm_lab.core.registry import ALGORITHMS
from slm_lab.testing.sessions import rows, run_session, vectors, whole_run
from tests.contract.table import built, cases


class PerParameterOptimizer(Optimizer):
    """The usual loop: zero_grad, backward, clip_grad_norm_, step, parameter by
    parameter.

    The flat vector gets the values after every step, for code that copies or averages
    it.
    """

    def __init__(self, spec, flat, bounds):
        _, optim = spec.optim_spec.stepping("")
        args = {**optim.args, "lr": spec.optim_spec.args["lr"]}
        schedule = spec.lr_scheduler_spec
        rate = LearningRate(args["lr"])
        if schedule is not None:
            rate = build_learning_rate(args["lr"], schedule.name, schedule.args)
        super().__init__(flat, None, rate, None, bounds)
        self.parameters = flat.views
        # off the flat vector, each with separate storage
        for parameter in self.parameters:
            parameter.data = parameter.data.clone()
            parameter.grad = None
        kind = getattr(torch.optim, optim.name.removeprefix("Global"))
        fused = {"fused": True} if kind is torch.optim.Adam else {}
        self.make = partial(kind, self.parameters, **args, **fused)
        self.optimizer = self.make()
        self.clip = spec.clip_grad_val
        self.num_steps = 0
        self.fast_steps = 0
        self.lookahead = {}
        if optim is not spec.optim_spec:
            self.lookahead = spec.optim_spec.args
        self.slow = []

    def backward(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        largest = torch.inf if self.clip is None else self.clip
        norm = nn.utils.clip_grad_norm_(self.parameters, largest).item()
        return StepReport(loss.item(), norm)

    def apply(self, skip=None):
        assert skip is None
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate.value
        k = self.lookahead.get("k", 1)
        if self.fast_steps % k == 0:
            self.slow = [parameter.detach().clone() for parameter in self.parameters]
        self.optimizer.step()
        self.num_steps += 1
        self.fast_steps += 1
        with torch.no_grad():
            if self.lookahead and self.fast_steps % k == 0:
                for parameter, slow in zip(self.parameters, self.slow, strict=True):
                    way = self.lookahead["alpha"] * (parameter - slow)
                    parameter.copy_(slow + way)
            for parameter in self.parameters if self._bounds is not None else ():
                parameter.clamp_(*self._bounds)
            self.follow()

    def follow(self):
        self.flat.vector.copy_(nn.utils.parameters_to_vector(self.parameters))

    def state_dict(self):
        return {
            "parameters": [parameter.detach().clone() for parameter in self.parameters],
            "statistics": self.flat.statistics.clone(),
        }

    @torch.no_grad()
    def load_state_dict(self, state):
        """As a reset does it: with a new optimizer of torch."""
        for parameter, value in zip(self.parameters, state["parameters"], strict=True):
            parameter.copy_(value)
        self.flat.statistics.copy_(state["statistics"])
        self.follow()
        self.optimizer = self.make()
        self.fast_steps = 0


def build_per_parameter(monkeypatch):
    """Has every part of the agent build these optimizers."""
    for name in built(ALGORITHMS):
        # now, because a module imported below would keep the old function
        ALGORITHMS.load(name)

    def build(net_spec, flat: FlatParameters, bounds=None):
        return PerParameterOptimizer(net_spec, flat, bounds)

    rooms = [
        module
        for name, module in sys.modules.items()
        if name.startswith("slm_lab.agent.")
    ]
    for module in rooms:
        if vars(module).get("build_optimizer") is build_optimizer:
            monkeypatch.setattr(module, "build_optimizer", build)


@pytest.mark.parametrize("row", cases(learning=True, later="medium"))
def test_a_whole_run_equals_the_per_parameter_run(
    row, request, tmp_path_factory, monkeypatch, tmp_path
):
    # Autograd rounds the gradients of biases to bfloat16.
    rtol, atol = (1.3e-6, 1e-5)
    if request.node.callspec.id.endswith("half_precision"):
        rtol, atol = (0.02, 1e-3)
    flat_run = whole_run(tmp_path_factory, row.spec)
    build_per_parameter(monkeypatch)
    monkeypatch.setattr(choose, "write_out_steps", lambda learner: None)  # by autograd
    reference = run_session(row.spec, tmp_path)
    optimizers = reference.agent.learner.train_state.optimizers.values()
    assert all(optimizer.num_steps > 3 for optimizer in optimizers)
    assert reference.agent.learner.opt_step == flat_run.opt_step
    for network, expected in vectors(reference).items():
        torch.testing.assert_close(
            flat_run.vectors[network], expected, rtol=rtol, atol=atol
        )
    # The two global norms are summed in different orders, so the last bits may differ.
    assert_frame_equal(
        flat_run.rows, rows(reference), rtol=max(rtol, 1e-4), atol=max(atol, 1e-6)
    )
