"""A part that breaks a contract is noticed, and a sentence says what to do."""

import random
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from slm_lab.agent.algorithm.ppo import PPO
from slm_lab.agent.memory.on_policy import OnPolicyBatchReplay
from slm_lab.agent.net.layers import EmptyLinear, init_heads
from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.spec.schema.memory import OnPolicyBatchReplaySpec
from slm_lab.spec.schema.policy_gradient import PPOSpec
from slm_lab.testing import (
    AlgorithmCase,
    AlgorithmContract,
    EnvironmentCase,
    EnvironmentContract,
    MemoryCase,
    MemoryContract,
    NetCase,
    NetContract,
)
from slm_lab.testing.play import Play
from tests.support import ppo

pytestmark = pytest.mark.usefixtures("registries")


class Linear(nn.Module):
    """A net that keeps the contract."""

    def __init__(self, spec, obs_shape, heads, generator):
        super().__init__()
        self.heads = nn.ModuleList(EmptyLinear(obs_shape[0], h.dim) for h in heads)
        init_heads(self.heads, heads, None, generator)

    def forward(self, obs):
        return tuple(head(obs) for head in self.heads)


class OfTheGlobalGenerator(Linear):
    def __init__(self, *args):
        super().__init__(*args)
        self.heads = nn.ModuleList(nn.Linear(4, h.out_features) for h in self.heads)


class Unused(Linear):
    def __init__(self, *args):
        super().__init__(*args)
        self.more = nn.Parameter(torch.ones(3))


class Copied(Linear):
    def __init__(self, *args):
        super().__init__(*args)
        self._first = [head.weight.detach().clone() for head in self.heads]

    def forward(self, obs):
        pairs = zip(super().forward(obs), self._first, strict=True)
        return tuple(out + obs @ weight.T for out, weight in pairs)


NET_FAULTS = {
    OfTheGlobalGenerator: (
        "test_it_is_initialised_by_the_given_generator_alone",
        "building the net drew from a global generator: initialise every layer from",
    ),
    Unused: (
        "test_gradients_reach_every_parameter",
        "no gradient reaches the parameter more: use it in forward",
    ),
    Copied: (
        "test_its_state_is_its_flat_vector",
        "keep no copy of parameters",
    ),
}


@pytest.mark.parametrize("kind", NET_FAULTS)
def test_the_fault_of_a_net(kind):
    NETS.register("Sound", None, f"{__name__}:Linear")
    NETS.register("Broken", None, f"{__name__}:{kind.__name__}")
    test, sentence = NET_FAULTS[kind]
    getattr(NetContract(), test)(NetCase({"type": "Sound"}, (4,)))
    with pytest.raises(AssertionError, match=sentence):
        getattr(NetContract(), test)(NetCase({"type": "Broken"}, (4,)))


class Sharing(OnPolicyBatchReplay):
    """A checkpoint of it changes with later steps."""

    def state_dict(self):
        arrays = {name: array[: self._t] for name, array in self._arrays.items()}
        return {**super().state_dict(), "arrays": arrays}


class Forgetful(OnPolicyBatchReplay):
    """Does not restore where it is."""

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self._t = 0


MEMORY_FAULTS = {
    Forgetful: (
        "test_saved_and_loaded_it_continues_as_before",
        (3,),
        "load_state_dict must restore all that state_dict returns",
    ),
    Sharing: (
        "test_a_saved_state_does_not_change",
        (),
        "shares arrays with the memory: state_dict must return copies",
    ),
}


@pytest.mark.parametrize("kind", MEMORY_FAULTS)
def test_the_fault_of_a_memory(kind):
    name = f"{__name__}:{kind.__name__}"
    MEMORIES.register("Broken", OnPolicyBatchReplaySpec, name)
    test, args, sentence = MEMORY_FAULTS[kind]
    with pytest.raises(AssertionError, match=sentence):
        getattr(MemoryContract(), test)(MemoryCase({"name": "Broken"}, 5), *args)


class Restless(PPO):
    """Its loss depends on a number that no checkpoint has."""

    calls = 0

    def learn(self, batch, frame):
        self.calls += 1
        batch.reward.mul_(1 + 0.1 * self.calls)
        return super().learn(batch, frame)


class Silent(PPO):
    def learn(self, batch, frame):
        report = super().learn(batch, frame)
        del report["value_loss"]
        return report


class Greedy(PPO):
    def learn(self, batch, frame):
        random.random()
        return super().learn(batch, frame)


def broken_algorithm(kind):
    ALGORITHMS.register("Broken", PPOSpec, f"{__name__}:{kind.__name__}")
    return AlgorithmCase(
        ppo(agent__algorithm={**ppo()["agent"]["algorithm"], "name": "Broken"})
    )


def test_state_that_an_algorithm_does_not_save():
    case = broken_algorithm(Restless)
    play = Play(case.spec)
    sentence = "state_dict .* lacks something that later updates depend on"
    with pytest.raises(AssertionError, match=sentence):
        AlgorithmContract().test_saved_and_loaded_it_acts_and_learns_as_before(
            case, play
        )
    play.env.close()


def test_a_column_that_an_algorithm_promises_and_does_not_report(monkeypatch):
    case = broken_algorithm(Silent)
    play = Play(case.spec)
    with pytest.raises(AssertionError, match=r"the report of Broken lacks \['value_"):
        AlgorithmContract().test_learning_changes_every_parameter_and_reports_what_it_promises(
            case, play, monkeypatch
        )
    play.env.close()


def test_an_algorithm_that_draws_from_a_global_generator(tmp_path_factory, tmp_path):
    case = broken_algorithm(Greedy)
    whole = AlgorithmContract.uninterrupted.__wrapped__
    with pytest.raises(AssertionError, match="drew from a global generator of Python"):
        AlgorithmContract().test_a_resumed_run_equals_the_uninterrupted_one(
            case, whole(AlgorithmContract(), case, tmp_path_factory), tmp_path
        )


class Ambient(gymnasium.Env):
    """Draws from NumPy's global generator."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action):
        return self._obs(), 1.0, False, True, {}

    def _obs(self):
        return np.random.random(1).astype(np.float32)  # noqa: NPY002


def test_the_fault_of_an_environment(registered):
    case = EnvironmentCase({"name": registered("Ambient-v0", Ambient)})
    with pytest.raises(AssertionError, match=r"draw from self\.np_random only"):
        EnvironmentContract().test_the_seed_decides_all_it_does(case)
    with pytest.raises(AssertionError, match=r"draw from self\.np_random"):
        EnvironmentContract().test_it_uses_no_global_generator(case)


def test_a_suite_without_a_case_names_what_is_missing():
    class Empty(NetContract):
        cases = {}

    with pytest.raises(AssertionError, match=r"Empty\.cases is empty: name a case"):
        Empty().pytest_generate_tests(None)


def test_without_pytest_the_error_has_the_command():
    code = "import sys; sys.modules['pytest'] = None; import slm_lab.testing"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].endswith(
        'needs pytest, which is not installed; run: pip install "slm-lab[testing]"'
    )
