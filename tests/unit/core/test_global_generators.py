"""The global generators of Python, NumPy and torch, which some environments draw
from."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from slm_lab.core.process import global_generators_seeded, seed_global_generators

LATE = """
import sys
from slm_lab.core.process import seed_global_generators

seed_global_generators({seed}, {branch})
assert "torch" not in sys.modules
import torch
print(float(torch.rand(())), sys.meta_path[0].__class__.__name__)
"""


@pytest.fixture(autouse=True)
def _as_before():
    with global_generators_seeded(0):
        yield


def draws():
    return random.random(), np.random.uniform(), float(torch.rand(()))  # noqa: NPY002


def seeded(seed, *branch):
    seed_global_generators(seed, *branch)
    return draws()


def test_the_same_branch_of_a_seed_draws_the_same():
    assert seeded(2**100, 3) == seeded(2**100, 3)


def test_every_seed_and_branch_draws_other_numbers_from_all_three():
    keys = [
        (seed, *branch)
        for seed in (0, 1, 2**100)
        for branch in ((), (0,), (1,), (0, 1))
    ]
    for numbers in zip(*(seeded(*key) for key in keys), strict=True):
        assert len(set(numbers)) == len(keys)


def test_two_streams_of_torch_differ_though_their_32_bits_are_equal(monkeypatch):
    """torch keeps 32 bits of a seed on a CPU; another position follows from other
    bits."""
    first = draws_of_torch(5, 0)
    assert first == draws_of_torch(5 + 2**32, 0), "the premise"
    assert first != draws_of_torch(5, 7)


def draws_of_torch(seed, position):
    from slm_lab.core.process import _TorchSeeding

    _TorchSeeding(seed, position).apply(torch)
    return torch.rand(3).tolist()


def test_after_a_block_the_generators_are_where_they_were():
    before = seeded(1)
    seed_global_generators(1)
    with global_generators_seeded(2):
        assert draws() != before
    assert draws() == before


@pytest.mark.medium
def test_torch_is_seeded_when_an_environment_imports_it_later():
    def drawn(seed, branch):
        text = LATE.format(seed=seed, branch=branch)
        command = [sys.executable, "-c", text]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.split()

    number, finder = drawn(5, 1)
    assert float(number) == seeded(5, 1)[2]
    assert finder != "_TorchSeeding", "it has removed itself"
