"""Networks on a GPU, in every mode; skipped where there is no GPU."""

import math
import warnings
from contextlib import closing
from itertools import islice

import pytest
import torch

from slm_lab.core.errors import LabError
from slm_lab.metrics.reader import read_rows
from slm_lab.spec.schema.memory import ReplaySpec
from slm_lab.spec.schema.optim import OptimSpec
from slm_lab.testing.play import Play
from tests.contract.table import cases
from tests.faults.lab import rows_file, run, write_spec
from tests.support import parse, ppo, soft

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="torch sees no GPU here"
)

FRAMES = 4_000


def on_gpu(make, distributed):
    together = {} if distributed is False else {"meta__max_session": 2}
    return make(
        agent__net__gpu=True,
        agent__net__cuda_graph=distributed in (False, "actor_learner"),
        meta__distributed=distributed,
        env__max_frame=FRAMES,
        meta__log_frequency=500,
        **together,
    )


def sac(**changes):
    return soft("SoftActorCritic", **changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "distributed", [False, "shared", "synced", "all_reduce", "actor_learner"]
)
@pytest.mark.parametrize("make", [ppo, sac])
def test_a_gpu_training_resumes_on_the_gpu(tmp_path, make, distributed):
    write_spec(tmp_path, on_gpu(make, distributed))
    run(tmp_path, "train")
    before = read_rows(rows_file(tmp_path))
    assert before.has_values("loss")
    more = ("-s", f"env.max_frame={2 * FRAMES}", "--schedules", "hold")
    run(tmp_path, "train@latest", *more)
    assert read_rows(rows_file(tmp_path))["total_frame"][-1] > before["total_frame"][-1]


ADAM = OptimSpec(name="GlobalAdam", lr=1e-3)
GRAPHED = "PPO", "PPOSIL", "VanillaDQN", "DQN", "DoubleDQN", "SoftActorCritic", "CrossQ"


def with_parts(row, **change):
    """The spec of a row with other keys of its nets, on the GPU."""
    spec = row.spec
    nets = {
        key: net.model_copy(update={"gpu": True, **change})
        for key, net in spec.agent.nets.items()
    }
    return spec.model_copy(update={"agent": spec.agent.model_copy(update=nets)})


def with_frames_on_the_gpu(spec):
    """The spec with its replay memory on the GPU."""
    memory = spec.agent.memory.model_copy(update={"storage": "device"})
    return spec.model_copy(
        update={"agent": spec.agent.model_copy(update={"memory": memory})}
    )


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("row", cases(learning=True))
def test_every_algorithm_and_net_learns_on_a_gpu(row, precision):
    play = Play(with_parts(row, precision=precision))
    with closing(play.env):
        reports = [*islice(play.reports(2_000), 3)]
    assert len(reports) == 3
    assert all(math.isfinite(report["loss"]) for report in reports)


def trained(spec, events=8):
    """The learner after so many training events."""
    play = Play(spec)
    with closing(play.env):
        assert len([*islice(play.reports(4_000), events)]) == events
    return getattr(play.agent.learner, "inner", play.agent.learner)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("row", cases(learning=True))
def test_a_replayed_step_changes_the_weights_as_the_step_itself_does(
    row, precision, request
):
    name = row.name
    variant = request.node.callspec.id
    if name not in GRAPHED or "recurrent" in variant:
        pytest.skip("without graphs")
    keys = {"precision": precision, "optim_spec": ADAM}
    spec = with_parts(row, **keys, cuda_graph=True)
    if isinstance(spec.agent.memory, ReplaySpec) and not spec.env.normalize_obs:
        spec = with_frames_on_the_gpu(spec)
    replayed = trained(spec)
    plain = trained(with_parts(row, **keys))
    assert replayed.step._recordings
    # Adam enlarges the rounding errors of biases before batch normalisation.
    if precision == "float32" and "norm" not in variant and name != "CrossQ":
        for key, flat in replayed.flats.items():
            wanted = plain.flats[key].vector
            torch.testing.assert_close(flat.vector, wanted, rtol=1e-3, atol=2e-4)


def test_a_step_that_waits_is_refused_by_name():
    data = ppo(agent__net__gpu=True, agent__net__cuda_graph=True)
    play = Play(parse(data))
    learner = play.agent.learner
    step = play.agent.learner._step
    learner.step._step = lambda *args: (
        step(*args),
        torch.ones(1).cuda().item(),
    )[0]
    with (
        closing(play.env),
        pytest.raises(LabError, match=r"cuda_graph = true: .* recorded"),
    ):
        list(play.reports(4_000))


def waits_of_an_event(data):
    """How often torch saw the host wait for the GPU in the second training event."""
    play = Play(parse(data))
    with closing(play.env), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        next(play.reports(400))
        while not play.agent.is_due:
            play.step()
        caught.clear()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            play.agent.learn(play.frame)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return sum(
            "synchronizing CUDA operation" in str(each.message) for each in caught
        )


@pytest.mark.parametrize(
    ("make", "key"),
    [(ppo, "training_epoch"), (sac, "training_batch_iter"), (sac, "training_iter")],
)
def test_a_training_event_waits_as_often_for_one_gradient_step_as_for_many(make, key):
    few, many = (
        waits_of_an_event(
            make(agent__net__gpu=True, **{f"agent__algorithm__{key}": times})
        )
        for times in (1, 5)
    )
    assert 0 < few == many
