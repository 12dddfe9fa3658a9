"""The rollout on a device against the one on the host."""

import numpy as np
import pytest
import torch

from slm_lab.agent.batch import VectorStep
from slm_lab.agent.memory.device_rollout import DeviceRollout
from slm_lab.agent.memory.on_policy import OnPolicyBatchReplay
from slm_lab.testing.play import same, saved
from tests.support import memory_layout
from tests.unit.agent.stream import NUM_ENVS, fill

HORIZON = 6
LAYOUT = memory_layout((2,), horizon=HORIZON, num_envs=NUM_ENVS)


def on_device(step):
    """The step in tensors."""

    def tensor(value):
        return torch.as_tensor(value) if isinstance(value, np.ndarray) else value

    act = step.act._replace(
        **{name: tensor(value) for name, value in step.act._asdict().items()}
    )
    fields = {name: tensor(value) for name, value in step._asdict().items()}
    return VectorStep(**{**fields, "act": act})


class Both:
    """Both memories, which get the same steps."""

    def __init__(self):
        self.host = OnPolicyBatchReplay(LAYOUT)
        self.device = DeviceRollout(LAYOUT)

    def add(self, step):
        self.host.add(step)
        self.device.add(on_device(step))


@pytest.mark.parametrize("seed", range(5))
def test_both_hand_out_the_same_rollouts(seed):
    both = Both()
    for round_ in range(2):
        fill(both.add, seed + round_, HORIZON)
        assert both.device.ready()
        assert same(vars(both.device.take()), vars(both.host.take()))
        assert not both.device.ready()


@pytest.mark.parametrize("length", range(HORIZON + 1))
def test_both_have_the_same_state_and_restore_it(length):
    both = Both()
    fill(both.add, 0, length)
    state = saved(both.device.state_dict())
    assert same(state, saved(both.host.state_dict()))
    other = Both()
    fill(other.add, 1, HORIZON)
    other.host.load_state_dict(state)
    other.device.load_state_dict(state)
    fill(other.add, 2, HORIZON - length)
    assert same(vars(other.device.take()), vars(other.host.take()))


@pytest.mark.parametrize("length", [0, 1, 4, HORIZON])
def test_both_break_off_the_running_episodes(length):
    both = Both()
    fill(both.add, 0, length)
    next_obs = np.full((NUM_ENVS, 2), 9.0, np.float32)
    if 0 < length < HORIZON:
        both.host.break_off(next_obs)
        both.device.break_off(next_obs)
    fill(both.add, 1, HORIZON - length)
    assert same(vars(both.device.take()), vars(both.host.take()))
