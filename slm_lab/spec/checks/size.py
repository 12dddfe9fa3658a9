"""Checks products of keys that are too large: nets, rollouts, training events,
processes."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, prod
from typing import Any

from slm_lab.core.errors import Problem
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.role import folded
from slm_lab.spec.schema import bounds
from slm_lab.spec.schema import net as nets
from slm_lab.spec.schema.algorithm import (
    ImitatingSpec,
    OnPolicyLearningSpec,
    PPOSpec,
    ReplayLearningSpec,
)
from slm_lab.spec.schema.arc import Layer
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.unrolls import frames_of_event

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _training_events(
    algorithm: ReplayLearningSpec | ImitatingSpec,
) -> Iterator[Problem]:
    steps = algorithm.training_iter * algorithm.training_batch_iter
    if message := bounds.STEPS_OF_EVENT.refusal(steps):
        product = f"× training_batch_iter = {steps:,} gradient steps; it {message}"
        yield Problem("agent.algorithm.training_iter", product, algorithm.training_iter)


def _rollouts(
    algorithm: PPOSpec | OnPolicyLearningSpec, env: EnvSpec, blocks: Blocks
) -> Iterator[Problem]:
    if blocks.memory is not None and blocks.memory.name != "OnPolicyBatchReplay":
        return  # its training_frequency counts episodes
    frames = frames_of_event(algorithm, env.num_envs, blocks.meta)
    is_ppo = isinstance(algorithm, PPOSpec)
    path = f"agent.algorithm.{'time_horizon' if is_ppo else 'training_frequency'}"
    if message := bounds.FRAMES_OF_ROLLOUT.refusal(frames):
        yield Problem(
            path, f"makes {frames:,} frames of one training event, which {message}"
        )
    elif isinstance(algorithm, PPOSpec):
        steps = ceil(frames / algorithm.minibatch_size) * algorithm.training_epoch
        if message := bounds.STEPS_OF_ROLLOUT.refusal(steps):
            product = (
                f"makes {steps:,} gradient steps of one training event, which {message}"
            )
            yield Problem(
                "agent.algorithm.training_epoch", product, algorithm.training_epoch
            )


def _env_processes(env: EnvSpec) -> Iterator[Problem]:
    message = bounds.ENV_PROCESSES.refusal(env.num_envs)
    if message and env.vectorization_mode == "async":
        yield Problem("env.num_envs", message, env.num_envs)


def _nets(blocks: Blocks) -> Iterator[Problem]:
    for path, net in blocks.nets.items():
        weights = max(hidden_weights(folded(net, role)) for role in nets.ROLES)
        if message := bounds.WEIGHTS.refusal(weights):
            yield Problem(
                path, f"its hidden layers have {weights:,} weights, which {message}"
            )


def hidden_weights(net: nets.NetSpec) -> int:
    """The number of weights between the hidden layers of a net. Those before the first
    and after the last layer depend on the environment and are not counted."""
    if isinstance(net, nets.MLPNetSpec):
        return _between(net.hid_layers)
    if isinstance(net, nets.HydraMLPNetSpec):
        trunk = net.trunk()
        tails = sum(_between((*trunk[-1:], *tail)) for tail in net.tails())
        return _between(trunk) + tails
    if isinstance(net, nets.ConvNetSpec):
        layers = net.conv_layers()
        convolutions = sum(
            layer.out_channels * following.out_channels * prod(following.kernel)
            for layer, following in pairwise(layers)
        )
        return convolutions + _between(net.fc_hid_layers)
    if isinstance(net, nets.RecurrentNetSpec):
        size, before = net.rnn_hidden_size, net.fc_hid_layers[-1:]
        first = size * (sum(before) + size)
        cells = GATES[net.cell_type] * (first + (net.rnn_num_layers - 1) * 2 * size**2)
        return cells + _between(net.fc_hid_layers)
    if isinstance(net, nets.TorchArcNetSpec) and net.arc is not None:
        return _between_layers(net.arc.layers())
    return 0


def multiplies_in_half(net: nets.NetSpec) -> bool:
    """Whether `precision` concerns any product of a net: one between hidden layers, or
    of images. First layers of vectors, recurrent cells and heads are in float32."""
    each = [folded(net, role) for role in nets.ROLES]
    if isinstance(net, nets.RecurrentNetSpec):
        return any(
            _between(r.fc_hid_layers)
            for r in each
            if isinstance(r, nets.RecurrentNetSpec)
        )
    of_images = isinstance(net, nets.ConvNetSpec | nets.TorchArcNetSpec)
    return of_images or any(map(hidden_weights, each))


def _between(widths: Sequence[int]) -> int:
    return sum(one * other for one, other in pairwise(widths))


def _between_layers(layers: Sequence[Layer]) -> int:
    total, before = 0, 0
    for layer in layers:
        width = layer.args.get("out_features", layer.args.get("out_channels"))
        if isinstance(width, int):
            total += before * width * _area(layer.args.get("kernel_size", 1))
            before = width
    return total


def _area(kernel: Any) -> int:
    """The area of a square kernel, or of [height, width]."""
    sizes = kernel if isinstance(kernel, list | tuple) else [kernel, kernel]
    return prod(size if isinstance(size, int) else 1 for size in sizes)


SIZE_CHECKS = (_training_events, _rollouts, _env_processes, _nets)
