"""Linear layers whose largest singular value is one (Miyato et al., arXiv:1802.05957)."""

import torch
from torch import nn
from torch.nn.utils import parametrizations

from slm_lab.agent.net.layers.init import Linear
from slm_lab.agent.net.mlp import MLPNet

POWER_ITERATIONS = 15
"""Steps by which the singular vectors are found at the start; later forwards take one each."""


def normalise_spectrum(net: nn.Module, generator: torch.Generator) -> None:
    """Divides the weight of every linear layer by an estimate of its largest singular value.

    The weight of a convolution counts as a matrix (out, in × kernel), as in the paper, section 3.
    The singular vectors are buffers of the network and begin as `generator` draws them.
    """
    for module in net.modules():
        if isinstance(module, MLPNet):
            module.use_layers()
    linear = [module for module in net.modules() if isinstance(module, Linear)]
    with torch.random.fork_rng(devices=[]):  # torch draws them first, from the global generator
        for layer in linear:
            parametrizations.spectral_norm(layer)
    for layer in linear:
        lists = layer.parametrizations
        assert isinstance(lists, nn.ModuleDict)
        for vector in lists.buffers():
            vector.normal_(generator=generator)
            vector.div_(vector.norm())
        layer.train(True)
        for _ in range(POWER_ITERATIONS):
            _ = layer.weight  # in this mode, to read it is to take a step
        layer.train(False)
