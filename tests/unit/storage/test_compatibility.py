"""A run folder whose spec was edited so that it no longer fits the saved state."""

import pytest

from slm_lab.core.errors import CheckpointError
from tests.support import make_session, parse, q_learning, run_session

OPTIMIZERS = ("GlobalAdam", "GlobalRMSprop", "NAdam", "Adagrad")


def short(raw, optimizer, **changes):
    net = {
        **raw["agent"]["net"],
        "optim_spec": {"name": optimizer, "lr": 1e-3},
        **changes,
    }
    return parse(
        {
            **raw,
            "agent": {**raw["agent"], "net": net},
            "env": {**raw["env"], "max_frame": 200},
        }
    )


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
    assert line.startswith(f"the checkpoint {tmp_path}")
    assert "was saved as" in line
    assert "undo the change" in line
