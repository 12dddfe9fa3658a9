"""A gradient step that is replayed as a CUDA graph is the step itself, for every
algorithm."""

from contextlib import closing
from itertools import islice

import pytest
import torch

from slm_lab.agent.algorithm import expectation
from slm_lab.agent.fast import recorded_step
from slm_lab.agent.fast.recorded_step import RecordedStep
from slm_lab.spec.schema.optim import OptimSpec
from slm_lab.testing.play import Play
from tests.contract import fake_graph
from tests.contract.parts_table import decay
from tests.contract.table import cases
from tests.support import parse, ppo, q_learning, soft

pytestmark = pytest.mark.medium

ADAM = OptimSpec(name="GlobalAdam", lr=1e-3)
GRAPHED = (
    "PPO",
    "PPOSIL",
    "PQN",
    "VMPO",
    "VanillaDQN",
    "DQN",
    "DoubleDQN",
    "SoftActorCritic",
    "REDQ",
    "TQC",
    "CrossQ",
    "TD3",
    "C51",
    "QRDQN",
    "IQN",
    "MunchausenDQN",
)
GRAPHED_ROWS = [
    case
    for case in cases(learning=True, later="slow")
    if case.values[0].name in GRAPHED and "recurrent" not in case.id
]
CHANGING = [case for case in GRAPHED_ROWS if case.values[0].spec.agent.has_schedules]
ROWS = [case for case in GRAPHED_ROWS if case not in CHANGING]
LINEAR = {"agent__net__lr_scheduler_spec": {"name": "LinearToZero", "frame": 600}}
SCHEDULED = {
    "PPO": ppo(
        agent__algorithm__clip_eps_spec=decay(0.3, 0.1),
        agent__algorithm__entropy_coef_spec=decay(0.1, 0.0),
        agent__algorithm__clip_vloss=True,
        agent__algorithm__minibatch_size=24,  # the last one is smaller
        **LINEAR,
    ),
    "PPO_target_kl": ppo(
        agent__algorithm__target_kl=1e-4, agent__algorithm__minibatch_size=8
    ),
    "SAC": soft(
        "SoftActorCritic",
        agent__algorithm__fixed_alpha=decay(0.5, 0.0),
        agent__algorithm__policy_delay=3,
        **LINEAR,
    ),
    "TD3": soft(
        "TD3",
        env__name="Pendulum-v1",
        env__max_t=40,
        agent__algorithm__explore_var_spec=decay(0.5, 0.0),
        **LINEAR,
    ),
    "DQN": q_learning("DQN", **LINEAR),
}
"""Numbers that change with the frames, and end at zero."""


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """Networks compute as on a GPU, by torch alone and without reading a number."""
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    monkeypatch.setattr(recorded_step.Recorder, "record", fake_graph.record)
    # On the CPU, unlike on a GPU, torch's own reads the greatest index.
    monkeypatch.setattr(
        expectation, "one_hot", lambda index, size: torch.eye(size)[index]
    )


def with_nets(spec, **change):
    """The spec with other keys of its nets."""
    nets = {key: net.model_copy(update=change) for key, net in spec.agent.nets.items()}
    return spec.model_copy(update={"agent": spec.agent.model_copy(update=nets)})


def trained(spec, events):
    """The weights after so many training events, the reports, and the step."""
    play = Play(spec)
    learner = getattr(play.agent.learner, "inner", play.agent.learner)
    assert isinstance(learner.step, RecordedStep)
    with closing(play.env):
        reports = [*islice(play.reports(4_000), events)]
    assert len(reports) == events
    weights = {name: flat.vector.clone() for name, flat in learner.flats.items()}
    return weights, reports, learner.step


def check_graphs(monkeypatch, spec, events, plain):
    """Replayed steps are the steps themselves to the last bit. Those without scalars
    for numbers (`plain`) differ in last bits, because a scalar is float32."""
    weights, reports, step = trained(with_nets(spec, cuda_graph=True), events)
    assert step._recordings
    assert max(step._calls.values()) > 2 * recorded_step.WARM_UP
    monkeypatch.setattr(recorded_step, "WARM_UP", 10**9)
    expected, expected_reports, unrecorded = trained(
        with_nets(spec, cuda_graph=True), events
    )
    assert not unrecorded._recordings
    for report, wanted in zip(reports, expected_reports, strict=True):
        assert report == pytest.approx(wanted, rel=1e-6, nan_ok=True)
    without, _, _ = trained(spec, events)
    for name, vector in weights.items():
        assert torch.equal(vector, expected[name]), name
        if plain:
            torch.testing.assert_close(vector, without[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("row", ROWS)
def test_a_replayed_step_is_the_step_itself(monkeypatch, row, request):
    variant = request.node.callspec.id
    # Adam enlarges the rounding errors of biases before batch normalisation.
    spec = with_nets(row.spec, optim_spec=ADAM)
    plain = "norm" not in variant and row.name != "CrossQ"
    check_graphs(monkeypatch, spec, 8, plain)


@pytest.mark.parametrize("row", cases(learning=True))
def test_the_keys_of_an_algorithm_tell_whether_its_steps_are_recorded(row):
    play = Play(row.spec)
    with closing(play.env):
        learner = getattr(play.agent.learner, "inner", play.agent.learner)
        is_recorded = learner.step is not None
        assert is_recorded == row.spec.agent.algorithm.RECORDS_STEPS


@pytest.mark.parametrize("row", CHANGING)
def test_a_step_is_not_recorded_if_its_own_numbers_change(row):
    play = Play(with_nets(row.spec, cuda_graph=True))
    with closing(play.env):
        assert not isinstance(play.agent.learner.step, RecordedStep)


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_graph_keeps_no_number_that_changes(monkeypatch, name):
    check_graphs(monkeypatch, parse(SCHEDULED[name]), 24, plain=True)
