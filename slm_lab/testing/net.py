"""The contract of a net: what every net does, whatever its heads are for."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from slm_lab.agent.fast.networks import array_net
from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.net.layers import BatchRenorm, Head
from slm_lab.agent.net.policy_value import host_forward
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.registry import NETS
from slm_lab.spec import builtin as _builtin  # registers the lab's parts  # noqa: F401
from slm_lab.spec.schema.mlp import MLPNetSpec
from slm_lab.testing.contract import Contract
from slm_lab.testing.sessions import global_generators, poison_global_generators

NORMALISING = (nn.BatchNorm1d, nn.BatchNorm2d, BatchRenorm)
SIZES = pytest.mark.parametrize("size", [1, 5])


@dataclass(frozen=True)
class NetCase:
    """A net block, such as `{"type": "MLPNet", "hid_layers": [8, 6]}`, the shape of the
    observations it is for, and the widths of its heads."""

    block: dict[str, Any]
    """The keys of `agent.net`, with its type."""
    obs_shape: tuple[int, ...]
    """The shape of one observation, such as (4,) or (2, 12, 12)."""
    heads: tuple[int, ...] = (3, 1)
    """The number of outputs of each head."""
    state_around: int = 0
    """Numbers after an observation: recurrent state and mark."""

    def build(
        self, seed: int = 0, gains: Sequence[float | None] | None = None
    ) -> nn.Module:
        """The net, in the mode for acting. `gains` are the gains of its heads."""
        kind = self.block["type"]
        NETS.load(kind)  # raises if there is none
        entry = NETS.get(kind)
        model = entry.params if entry is not None and entry.params else MLPNetSpec
        widths = self.heads
        heads = list(map(Head, widths, gains or [None] * len(widths)))
        generator = torch.Generator().manual_seed(seed)
        spec = model.model_validate(self.block)
        return build_net(spec, self.obs_shape, heads, generator).train(False)

    def observations(self, size: int) -> Tensor:
        """(size, *obs_shape) random ones."""
        *lead, last = self.obs_shape
        # another seed than the weights have
        generator = torch.Generator().manual_seed(17)
        return torch.randn((size, *lead, last + self.state_around), generator=generator)


def copied_state(net: nn.Module) -> dict[str, Tensor]:
    """The state of a net as it is now."""
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def changed(net: nn.Module, before: dict[str, Tensor]) -> list[str]:
    """The names of parameters and buffers that are not as `before`."""
    state = net.state_dict()
    return [name for name, old in before.items() if not torch.equal(state[name], old)]


def are_equal(outputs: Iterable[Tensor], others: Iterable[Tensor]) -> bool:
    """Whether the outputs of all heads are equal bit for bit."""
    return all(map(torch.equal, outputs, others))


def are_close(outputs: Iterable[Tensor], others: Iterable[Tensor]) -> bool:
    """Whether the outputs of all heads are equal but for rounding."""
    pairs = zip(outputs, others, strict=True)
    return all(torch.allclose(output, other, 1.3e-6, 1e-5) for output, other in pairs)


class NetContract(Contract):
    """The tests that every net passes. `cases` are `NetCase`s."""

    cases: ClassVar[dict[str, NetCase]]

    @SIZES
    def test_there_is_one_output_per_head_with_its_width(
        self, case: NetCase, size: int
    ) -> None:
        outputs = case.build()(case.observations(size))
        shapes = [tuple(out.shape) for out in outputs]
        expected = [(size, width) for width in case.heads]
        assert shapes == expected, (
            f"forward() returned outputs of the shapes {shapes}: return a tuple with "
            f"one for each head, {expected}"
        )
        for out in outputs:
            assert out.dtype == torch.float32, (
                f"forward() returned {out.dtype}: return torch.float32"
            )
            assert out.isfinite().all(), (
                "forward() returned NaN or infinite numbers of a new net: initialise "
                "every parameter"
            )

    @SIZES
    def test_an_actor_sees_the_same_outputs(self, case: NetCase, size: int) -> None:
        net = case.build()
        obs = case.observations(size)
        outputs = [out.detach().numpy() for out in net(obs)]
        ways: list[Callable[..., Sequence[Any]]] = [
            host_forward(net, torch.device("cpu"))
        ]
        arrays = array_net(net)
        if arrays is not None:
            ways.append(arrays.forward)
        for forward in ways:
            acted = forward(obs.numpy())[: len(case.heads)]
            for out, expected in zip(acted, outputs, strict=True):
                assert np.allclose(out, expected, rtol=1e-4, atol=1e-5), (
                    "an actor sees other outputs than forward() returns: compute them "
                    "in forward() alone, without hooks or state"
                )

    def test_it_is_initialised_by_the_given_generator_alone(
        self, case: NetCase
    ) -> None:
        poison_global_generators(0)
        before = global_generators()
        first = copied_state(case.build())
        assert global_generators() == before, (
            "building the net drew from a global generator: initialise every layer "
            "from the `generator` that it is given; EmptyLinear draws nothing itself"
        )
        poison_global_generators(1)
        differing = changed(case.build(), first)
        assert not differing, (
            f"{differing} differ between two nets of one seed: initialise them from "
            "the `generator` that the net is given"
        )
        assert changed(case.build(seed=1), first), (
            "nets of two seeds are equal: initialise the weights from the `generator`"
        )

    def test_the_gain_of_a_head_is_the_scale_of_its_output(self, case: NetCase) -> None:
        obs = case.observations(5)
        gains = [0.01, 3.0][: len(case.heads)]
        ones = [1.0] * len(gains)
        outputs = case.build(gains=gains)(obs)
        unscaled = case.build(gains=ones)(obs)
        for gain, out, plain in zip(gains, outputs, unscaled, strict=True):
            assert plain.abs().max() > 0, (
                "a head with a gain of 1 returns zeros: initialise it by init_heads"
            )
            assert torch.allclose(out, gain * plain, 1.3e-6, 1e-5), (
                f"a head with the gain {gain} is not {gain} times the one with the "
                "gain 1: initialise heads by init_heads, which reads Head.gain"
            )

    def test_gradients_reach_every_parameter(self, case: NetCase) -> None:
        net = case.build()
        outputs = net(case.observations(32))
        losses = [out.square().mean() for out in outputs]
        torch.autograd.backward(losses)
        for name, parameter in net.named_parameters():
            grad = parameter.grad
            unused = (
                f"no gradient reaches the parameter {name}: use it in forward(), "
                "without detach(), or do not register it"
            )
            assert grad is not None, unused
            assert grad.count_nonzero() > 0, unused
            assert grad.isfinite().all(), (
                f"the gradient of {name} is NaN or infinite: look for a division, a "
                "logarithm or a root of zero in forward()"
            )

    def test_gradients_are_those_of_the_function(self, case: NetCase) -> None:
        """The function is measured by central differences along a random direction, in
        double precision."""
        net = case.build().double()
        obs = case.observations(16).double()
        parameters = list(net.parameters())

        def loss() -> Tensor:
            outputs = enumerate(net(obs), 1)
            terms = [(out * number).sin().mean() for number, out in outputs]
            return torch.stack(terms).sum()

        generator = torch.Generator().manual_seed(3)
        direction = [
            torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters
        ]
        grads = torch.autograd.grad(loss(), parameters)
        products = [(g * d).sum() for g, d in zip(grads, direction, strict=True)]
        slope = torch.stack(products).sum()
        here = nn.utils.parameters_to_vector(parameters)
        along = nn.utils.parameters_to_vector(direction)
        values = []
        width = 1e-6
        for sign in (1, -1):
            with torch.no_grad():
                moved = here + sign * width * along
                nn.utils.vector_to_parameters(moved, parameters)
                values.append(loss())
        difference = (values[0] - values[1]) / (2 * width)
        assert torch.allclose(slope, difference, rtol=1e-4, atol=1e-7), (
            f"the gradient says a slope of {slope:.6g}, the function has "
            f"{difference:.6g}: look for detach(), in-place changes or random numbers "
            "in forward()"
        )

    def test_when_acting_each_observation_is_answered_by_itself(
        self, case: NetCase
    ) -> None:
        net = case.build()
        obs = case.observations(5)
        before = copied_state(net)
        together = net(obs)
        for index in range(len(obs)):
            alone = net(obs[index : index + 1])
            rows = [out[index : index + 1] for out in together]
            assert are_close(rows, alone), (
                "the output for an observation depends on the others of its batch: "
                "keep the first axis apart while the net is not training"
            )
        assert not changed(net, before), (
            f"forward() changed {changed(net, before)} while acting: change statistics "
            "only if self.training"
        )

    def test_only_batch_normalisation_looks_at_the_mode(self, case: NetCase) -> None:
        net = case.build()
        obs = case.observations(16)
        acting = net(obs)
        before = copied_state(net)
        learning = net.train(True)(obs)
        normalises = any(isinstance(module, NORMALISING) for module in net.modules())
        fix = (
            "train(True) changes outputs or statistics of a net without batch "
            "normalisation: remove dropout and the like"
        )
        if normalises:
            fix = "batch normalisation has no effect in train(True): let it learn"
        assert bool(changed(net, before)) == normalises, fix
        assert are_equal(acting, learning) != normalises, fix

    @pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
    @pytest.mark.parametrize("size", [1, 7])
    def test_it_puts_out_the_same_with_and_without_gradients(
        self,
        case: NetCase,
        context: Callable[[], AbstractContextManager[None]],
        size: int,
    ) -> None:
        net = case.build()
        obs = case.observations(size)
        with_gradients = net(obs)
        with context():
            without = net(obs)
        assert all(out.requires_grad for out in with_gradients), (
            "an output has no gradient: compute it from the parameters, without "
            "detach() or no_grad()"
        )
        assert not any(out.requires_grad for out in without), (
            "an output has a gradient under no_grad(): do not enable gradients in "
            "forward()"
        )
        # NumPy, or torch's kernels for inference alone
        assert are_close(with_gradients, without), (
            "outputs differ with and without gradients: compute the same in both"
        )

    def test_it_leaves_the_observations_as_they_are(self, case: NetCase) -> None:
        net = case.build()
        obs = case.observations(5)
        before = obs.clone()
        for mode in (True, False):
            outputs = net.train(mode)(obs)
            torch.autograd.backward([out.mean() for out in outputs])
        assert torch.equal(obs, before), (
            "forward() changed its input: use no in-place operation on it"
        )

    def test_its_state_is_its_flat_vector(self, case: NetCase) -> None:
        """The lab saves, copies and averages a net through one flat vector, of which
        its parameters are views."""
        net = case.build()
        obs = case.observations(5)
        other = case.build(seed=1)
        expected = other(obs)
        state = FlatParameters(other).state_dict()
        FlatParameters(net).load_state_dict(state)
        assert are_close(net(obs), expected), (
            "with the parameters of another net it does not put out what that net "
            "does: keep no copy of parameters and no state outside of parameters and "
            "buffers"
        )
