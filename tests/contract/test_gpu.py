"""Every algorithm with its networks on a GPU: where the host waits for it, and how
often.

Reading a number from a GPU takes longer than a gradient step of a small network,
because the host waits until the GPU has done all that it was given.
"""

from contextlib import closing

import pytest
import torch

from slm_lab.agent import device
from slm_lab.agent.algorithm import dual
from slm_lab.agent.from_spec import net, networks
from slm_lab.agent.net import policy_value
from slm_lab.testing.play import Play
from tests.contract.fake_gpu import GPU, FakeGPU
from tests.contract.table import ALGORITHM_ROWS, cases
from tests.support import parse, ppo, q_learning, soft

pytestmark = pytest.mark.medium

AGAIN = "normalized_targets_shared"
"""Its values are unscaled on the GPU after the actions have left it."""
HAS_ADAMW = torch._C._dispatch_has_kernel_for_dispatch_key(
    "aten::_fused_adamw_", "Meta"
)
"""Whether the fake GPU can do the steps of AdamW; torch 2.4 has no such kernel."""
WITHOUT = ("half_precision", "recurrent", *(() if HAS_ADAMW else ("residual",)))
"""What the fake GPU cannot do. A recurrent net waits for the lengths of the
sequences."""
ROWS = [
    case
    for case in cases(learning=True, later="slow")
    if not any(word in case.id for word in WITHOUT)
]


@pytest.fixture
def gpu(monkeypatch):
    """Networks are built on the fake GPU."""
    for module in (device, dual, networks, net):
        monkeypatch.setattr(module, "resolve_device", lambda gpu: GPU)
    # As with a real GPU, a parameter stays the same object when it moves.
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with FakeGPU() as mode:
            yield mode
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.parametrize("row", ROWS)
def test_a_vector_step_waits_once_for_its_actions_and_every_algorithm_learns(
    gpu, row, request
):
    waits = 2 if AGAIN in request.node.name else 1
    play = Play(row.spec)
    allow_no_copies(gpu, play.agent.learner)
    reports = []
    with closing(play.env):
        while len(reports) < 2:
            with gpu.waiting(waits):
                play.step()
            if (report := play.agent.learn(play.frame)) is not None:
                reports.append(report)
    assert all(
        isinstance(value, float) for report in reports for value in report.values()
    )


def test_a_replay_on_the_gpu_copies_no_observations_for_a_batch(gpu):
    def copied(storage):
        spec = ALGORITHM_ROWS["DoubleDQN"]["images"].spec
        memory = spec.agent.memory.model_copy(update={"storage": storage})
        agent = spec.agent.model_copy(update={"memory": memory})
        play = Play(spec.model_copy(update={"agent": agent}))
        with closing(play.env):
            while not play.agent.is_due:
                play.step()
        before, waits = gpu.copied, gpu.waits
        batch = play.agent.memory.take().sample(0).to(GPU)
        assert gpu.waits == waits
        return gpu.copied - before, batch.obs.nbytes + batch.next_obs.nbytes

    (with_frames, size), (without, _) = copied("memory"), copied("device")
    assert without < with_frames - 0.8 * size  # but for the last frames of episodes


def allow_no_copies(gpu, learner):
    """Steps that a CUDA graph can hold copy nothing from the host, but for the
    first."""
    learner = getattr(learner, "inner", learner)
    step, seen = getattr(learner, "step", None), []

    def checked(*inputs):
        before = gpu.copies
        update = step(*inputs)
        seen.append(gpu.copies - before)
        assert len(seen) == 1 or not seen[-1]
        return update

    if step is not None:
        learner.step = checked


def dqn(**changes):
    return q_learning("DQN", **changes)


def sac(**changes):
    return soft("SoftActorCritic", **changes)


def waits_of_an_event(gpu, data):
    """How often the host waits in the second training event."""
    play = Play(parse(data))
    with closing(play.env):
        next(play.reports(400))
        while not play.agent.is_due:
            play.step()
        before = gpu.waits
        play.agent.learn(play.frame)
    return gpu.waits - before


@pytest.mark.parametrize(
    ("make", "key", "expected"),
    [
        # values, the last states' values, the report, the check
        (ppo, "training_epoch", 4),
        # the check per batch, the report, the check of the event
        (dqn, "training_batch_iter", 3),
        (sac, "training_batch_iter", 3),
        (sac, "training_iter", 3),
    ],
)
def test_a_training_event_waits_as_often_for_one_gradient_step_as_for_many(
    gpu, make, key, expected
):
    few, many = (
        waits_of_an_event(gpu, make(**{f"agent__algorithm__{key}": times}))
        for times in (1, 5)
    )
    assert few == many == expected


def test_normalised_targets_are_not_waited_for(gpu):
    assert waits_of_an_event(gpu, ppo(agent__algorithm__normalize_v_targets=True)) == 4


def test_the_values_of_a_long_rollout_are_waited_for_once(gpu, monkeypatch):
    monkeypatch.setattr(policy_value, "STATES_AT_ONCE", 2)
    assert waits_of_an_event(gpu, ppo()) == 4
