"""The input of a written-out function."""

import numpy as np
import torch

from slm_lab.agent.autodiff import Node


class Leaf:
    """An input of a function, which keeps the gradient that reaches it."""

    def __init__(self, values):
        self.grad = None
        self.node = Node(values.numpy(), (), self._keep)

    def _keep(self, grad):
        self.grad = torch.from_numpy(np.array(grad))
        return ()
