"""A run folder whose spec was edited so that it builds something else than was saved."""

from pathlib import Path

import pytest

from slm_lab.core.errors import CheckpointError
from slm_lab.storage.compatibility import check_optimizers
from tests.support import actor_critic, make_session, parse, q_learning, run_session

OPTIMIZERS = ("GlobalAdam", "GlobalRMSprop", "NAdam", "Adagrad")


def short(raw, optimizer, **changes):
    net = {**raw["agent"]["net"], "optim_spec": {"name": optimizer, "lr": 1e-3}, **changes}
    return parse({**raw, "agent": {**raw["agent"], "net": net},
                  "env": {**raw["env"], "max_frame": 200}})  # fmt: skip


@pytest.mark.parametrize("built", OPTIMIZERS)
@pytest.mark.parametrize("saved", OPTIMIZERS)
def test_resuming_with_another_optimizer_is_one_clear_line(saved, built, tmp_path):
    raw = q_learning("DoubleDQN")
    run_session(short(raw, saved), tmp_path)
    if saved == built:
        make_session(short(raw, built), tmp_path, resume=True).close()
        return
    with pytest.raises(CheckpointError, match="optimizer") as caught:
        make_session(short(raw, built), tmp_path, resume=True)
    (line,) = str(caught.value).splitlines()
    assert "was saved as" in line
    assert "undo the change" in line


def test_the_folder_and_the_network_are_named(tmp_path):
    saved = run_session(short(actor_critic(), "GlobalAdam"), tmp_path / "a").agent.learner
    edited = short(
        actor_critic(), "GlobalAdam", critic_optim_spec={"name": "GlobalRMSprop", "lr": 1e-3},
        actor_optim_spec={"name": "GlobalAdam"},
    )  # fmt: skip
    built = run_session(edited, tmp_path / "b").agent.learner.train_state.optimizers
    state = saved.train_state.state_dict()
    file = Path("data/small_run/model/small_t0_s0_state_000001_200.pt")
    with pytest.raises(CheckpointError) as caught:
        check_optimizers(state, built, file)
    assert str(caught.value) == (
        "data/small_run: the spec in it was changed and no longer builds the agent in "
        "small_t0_s0_state_000001_200.pt: the optimizer of the network critic (optim_spec) was "
        "saved as exp_avg, exp_avg_sq, step and is built as square_avg; undo the change in its "
        "*_spec.json"
    )
    check_optimizers(state, saved.train_state.optimizers, file)
    check_optimizers({name: {**unit, "rule": None} for name, unit in state.items()}, built, file)
