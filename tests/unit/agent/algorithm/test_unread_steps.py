"""Steps on a GPU read no number from it: here by the same code on the CPU."""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.fast import choose
from slm_lab.core.errors import NonFiniteLossError
from tests.support import ppo, q_learning, soft, vmpo
from tests.unit.agent.algorithm import batches
from tests.unit.agent.algorithm.batches import OneBatch, rollout, transitions


@pytest.fixture(autouse=True)
def by_autograd(monkeypatch):
    """As on a GPU."""
    monkeypatch.setattr(choose, "write_out_steps", lambda learner: None)


def unread(learner):
    """The learner, as if its networks were on a GPU."""
    state = learner.train_state
    state.failed = torch.zeros(())
    for optimizer in state.optimizers.values():
        optimizer.failed = state.failed
    return learner


class Batches(OneBatch):
    """Several batches, one after the other."""

    def __init__(self, *each):
        super().__init__(each[0])
        self.each = iter(each)
        self.num_batches = len(each)

    def sample(self, frame):
        return next(self.each)


def dqn(**changes):
    return q_learning("DQN", **changes)


def sac(**changes):
    return soft("SoftActorCritic", **changes)


def a_rollout():
    return replace(rollout(), value=torch.full((3, 2), 0.5))


def a_source():
    return Batches(transitions(), transitions())


CASES = pytest.mark.parametrize(
    ("make", "batch"),
    [(ppo, a_rollout), (vmpo, a_rollout), (dqn, a_source), (sac, a_source)],
)
CLIPPED = {"agent__net__clip_grad_val": 0.05}


@CASES
def test_they_learn_what_other_steps_learn(make, batch):
    plain, other = (batches.learner_of(make(**CLIPPED)) for _ in range(2))
    unread(other)
    for frame in range(5):
        expected = plain.learn(batch(), frame)
        report = other.learn(batch(), frame)
        assert report.keys() == expected.keys()
        for name, value in expected.items():
            assert float(report[name]) == pytest.approx(
                value, rel=1e-4, abs=1e-6, nan_ok=True
            )
    for name, flat in plain.flats.items():
        assert_close(other.flats[name].vector, flat.vector, rtol=1e-5, atol=1e-6)


def event(learner, batch):
    learner.learn(batch, 0)
    learner.train_state.check()


def broken(batch):
    return replace(batch, reward=batch.reward + torch.tensor(math.nan))


@CASES
def test_after_a_failed_step_nothing_changes_and_the_event_raises(make, batch):
    learner = unread(batches.learner_of(make()))
    if make in (ppo, vmpo):
        good = batch()
        bad = broken(batch())
    else:
        good = batch()
        bad = Batches(broken(transitions()), transitions())
    event(learner, good)
    tensors = [
        t for o in learner.train_state.optimizers.values() for t in o.state_tensors()
    ]
    before = [tensor.clone() for tensor in tensors]
    with pytest.raises(NonFiniteLossError, match="the loss or the gradient of a step"):
        event(learner, bad)
    assert_close(tensors, before, rtol=0, atol=0)


def test_the_first_batch_that_failed_is_described():
    learner = unread(batches.learner_of(dqn()))
    source = Batches(transitions(), broken(transitions()), transitions())
    with pytest.raises(NonFiniteLossError, match=r"reward \(4,\), 4 values not finite"):
        learner.learn(source, 0)
