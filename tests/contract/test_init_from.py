"""Every algorithm and net begins with the weights and normalisers of another run."""

import numpy as np
import pytest
import torch

from slm_lab.records.init_from import Parent, taken_from
from slm_lab.session.initial import normalizers_in, values_of
from slm_lab.storage.run_dir import FOLDERS, RunDir
from slm_lab.testing.sessions import (
    assert_same_run,
    assert_same_vectors,
    stop_at,
    vectors,
)
from tests.contract.table import cases
from tests.support import make_session, parse, ppo, run_session


def parent_of(session, *parts):
    """The agent of a Session, as a new run finds it in a folder."""
    spec, snapshot = session.spec, session.parts.snapshot()
    statistics = np.asarray(snapshot["statistics"])
    normalizers = normalizers_in(statistics, spec.env.normalize_reward)
    about = {"run": "parent", "session": 0, "agent": "latest", "frame": 0}
    values = values_of(snapshot["flats"])
    return Parent(
        source="parent",
        values=values,
        normalizers=normalizers,
        normalize_obs=spec.env.normalize_obs,
        parts=parts,
        net={},
        about=about,
    )


def begin(folder, parent, spec):
    """A run folder whose Sessions begin with the parent."""
    for part in FOLDERS:
        (folder / part).mkdir(parents=True)
    return taken_from(parent, spec).write(RunDir(folder, spec.name))


@pytest.mark.parametrize("row", cases(learning=True))
def test_a_run_begins_with_all_networks_and_normalisers_of_its_parent(row, tmp_path):
    spec = row.spec
    parent = make_session(spec, tmp_path / "parent", seed=0)
    for n, flat in enumerate(parent.agent.learner.flats.values()):
        flat.vector.add_(0.01 * (n + 1))
        flat.statistics.add_(0.5)
    parent.env.statistics[:] = np.arange(1.0, 1.0 + len(parent.env.statistics))
    begin(tmp_path / "child", parent_of(parent), spec)
    child = make_session(spec, tmp_path / "child", seed=1)
    assert_same_vectors(vectors(child), vectors(parent))
    for key, flat in child.agent.learner.flats.items():
        assert torch.equal(
            flat.statistics, parent.agent.learner.flats[key].statistics
        ), key
    assert np.array_equal(child.env.statistics, parent.env.statistics)
    online = [flat.vector for flat in child.agent.learner.flats.values()]
    for target in child.agent.learner.target_networks.values():
        assert any(torch.equal(target.target.vector, each) for each in online)
    assert child.agent.learner.opt_step == child.clock.frame == 0
    parent.close()
    child.close()


MASKED_ROWS = [
    case
    for case in cases(learning=True)
    if case.values[0].spec.env.name == "ProbeTakeAllowed-v0"
]


@pytest.mark.parametrize("row", MASKED_ROWS)
def test_a_run_with_masks_begins_with_the_networks_of_one_without(row, tmp_path):
    env = row.spec.env.model_copy(update={"action_mask": None})
    unmasked = row.spec.model_copy(update={"env": env})
    parent = make_session(unmasked, tmp_path / "parent", seed=0)
    begin(tmp_path / "child", parent_of(parent), row.spec)
    child = make_session(row.spec, tmp_path / "child", seed=1)
    assert_same_vectors(vectors(child), vectors(parent))
    parent.close()
    child.close()


def test_a_part_leaves_the_rest_to_the_seed_of_the_run(tmp_path):
    spec = parse(ppo())
    parent, fresh = (make_session(spec, tmp_path / str(n), seed=n) for n in range(2))
    begin(tmp_path / "child", parent_of(parent, "net.body"), spec)
    child = make_session(spec, tmp_path / "child", seed=1)
    of = [values_of(each.parts.snapshot()["flats"]) for each in (parent, fresh, child)]
    for name, value in of[2].items():
        source = of[0] if name.startswith("net.hidden") else of[1]
        assert torch.equal(value, source[name]), name
    assert any(name.startswith("net.heads") for name in of[2])
    for each in (parent, fresh, child):
        each.close()


@pytest.mark.parametrize(
    "changes",
    [{}, {"env__normalize_obs": True, "env__normalize_reward": True}],
    ids=["plain", "normalised"],
)
def test_a_resume_needs_neither_the_parent_nor_the_file_it_began_with(
    changes, tmp_path
):
    spec = parse(ppo(**changes))
    parent = run_session(spec, tmp_path / "parent", seed=3)
    for name in ("whole", "stopped"):
        begin(tmp_path / name, parent_of(parent), spec)
    whole = run_session(spec, tmp_path / "whole")
    stopped = run_session(spec, tmp_path / "stopped", on_row=stop_at(400))
    assert stopped.clock.frame < spec.env.max_frame
    RunDir(tmp_path / "stopped", spec.name).initial_file.unlink()
    resumed = run_session(spec, tmp_path / "stopped", resume=True)
    assert_same_run(resumed, whole)


def test_the_statistics_of_the_parent_go_on_counting(tmp_path):
    spec = parse(ppo(env__normalize_obs=True))
    parent = run_session(spec, tmp_path / "parent")
    count = parent.env.statistics[0]
    begin(tmp_path / "child", parent_of(parent), spec)
    child = run_session(spec, tmp_path / "child", seed=1)
    assert child.env.statistics[0] >= count + spec.env.max_frame
