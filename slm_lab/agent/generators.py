"""The randomness of an agent's half."""

from typing import final

import numpy as np
import torch

from slm_lab.core.types import StateDict


@final
class Generators:
    """One seed, and a generator for each of the libraries that draw by it."""

    def __init__(self, seed: int) -> None:
        self.array = np.random.default_rng(seed)
        self.tensor = torch.Generator().manual_seed(seed)

    def state_dict(self) -> StateDict:
        """Where both are."""
        return {"array": self.array.bit_generator.state, "tensor": self.tensor.get_state()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores both."""
        self.array.bit_generator.state = state["array"]
        self.tensor.set_state(state["tensor"])
