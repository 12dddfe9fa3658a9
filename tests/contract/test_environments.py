"""Environments that the lab steps in each of its ways keep the contract."""

import pytest
from typing_extensions import override

from slm_lab.testing import EnvironmentCase, EnvironmentContract
from tests.learning.probe_envs import register_probes

register_probes()

PLAIN = {"normalize_obs": False, "normalize_reward": False}
NORMALIZED = {"max_t": 45, "normalize_obs": True, "normalize_reward": True}


def exact(name, **keys):
    """An environment whose episodes go on after a resume."""
    return EnvironmentCase({"name": name, **NORMALIZED, **keys}, exact_state=True)


class TestEnvironments(EnvironmentContract):
    cases = {
        "native": exact("CartPole-v1"),
        "cartpole": exact("CartPole-v1", vectorization_mode="sync"),
        "pendulum": exact("Pendulum-v1"),
        "processes": exact("Pendulum-v1", vectorization_mode="async"),
        "acrobot": exact("Acrobot-v1"),
        "mountain_car": exact("MountainCar-v0"),
        "mountain_car_continuous": exact("MountainCarContinuous-v0"),
        "torch_cartpole": exact("CartPole-v1", backend="torch"),
        "torch_pendulum": exact("Pendulum-v1", backend="torch"),
        "torch_acrobot": exact("Acrobot-v1", backend="torch"),
        "stacked": exact("CartPole-v1", frame_op="concat", frame_op_len=2),
        "observations_in_parts": exact("ProbeMatchParts-v0", **PLAIN),
        "images": exact("ProbeMatchImage-v0", **PLAIN),
        "bits": exact("ProbeMatchBits-v0", **PLAIN),
        "no_chance": EnvironmentCase(
            {"name": "ProbeTwoStepCredit-v0"}, is_random=False
        ),
    }

    @override
    def cases_of(self, test):
        in_processes = test == "test_in_processes_of_their_own_they_do_the_same"
        return [
            pytest.param(
                case,
                id=name,
                marks=[pytest.mark.medium] * (in_processes or name == "processes"),
            )
            for name, case in self.cases.items()
        ]
