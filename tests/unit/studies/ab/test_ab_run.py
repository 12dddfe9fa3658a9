"""The trainings of a test of A against B: how many, failures, stops and kills.

A training here is a stand-in with a final return; real ones are in tests/faults.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from slm_lab.core.errors import LabError, UsageError
from slm_lab.records.overview import overviews_in
from slm_lab.records.run_source import RunSource
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.ab import run as run_module
from slm_lab.studies.ab.plan import AbRequest, make_plan
from slm_lab.studies.ab.run import AbRun
from slm_lab.studies.compare import trainings
from slm_lab.studies.compare.run import CompareRun
from slm_lab.studies.pool import Resources, TrialEnd
from tests.support import ppo


class Killed(BaseException):
    """The process that runs a test has gone."""


@dataclass
class Lab:
    """What stands in for all trainings: final returns by label and seed, and how many
    run at once."""

    effect: float = 60.0
    jobs: int = 1
    seed: int = 0
    trained: list = None
    fails: tuple = ()
    """Specs and seeds that fail."""
    killed_after: int | None = None
    """The number of trainings that end before the process is killed."""

    def __post_init__(self):
        self.trained = []

    def score(self, spec_name, seed):
        label = spec_name[-1]
        generator = np.random.default_rng([self.seed, seed, label == "b"])
        return float(generator.normal(100, 20) + self.effect * (label == "b"))


class StandPool:
    """Stands in for a Pool; trainings end in another order than they began."""

    def __init__(self, lab):
        self.lab = lab
        self.resources = Resources(cpus=lab.jobs, gpus=0)
        self.running = {}
        self._given = {}
        self._generator = np.random.default_rng(1)

    def start(self, trial, task, request):
        self.running[trial] = task
        self._given[trial] = self.resources.take(request)

    def wait(self):
        lab = self.lab
        if lab.killed_after is not None and len(lab.trained) >= lab.killed_after:
            raise Killed

    def take_ends(self):
        trial = int(self._generator.choice(list(self.running)))
        task = self.running.pop(trial)
        self.resources.give_back(self._given.pop(trial))
        self.lab.trained.append((task.spec_name[-1], task.seed))
        if (task.spec_name[-1], task.seed) in self.lab.fails:
            return {trial: TrialEnd(Ending.FAILED, {}, "NaN in the loss", True)}
        score = self.lab.score(task.spec_name, task.seed)
        return {trial: TrialEnd(Ending.FINISHED, {"final_return": score}, frame=1000)}

    def frame_of(self, trial):
        return 0

    def stop(self, trial):
        pass

    def stop_all(self):
        pass

    def kill_all(self):
        pass


@pytest.fixture
def lab(monkeypatch):
    lab = Lab()

    def stand_run(source):
        name = source.name()
        seed = source.seed
        if source.run is not None:
            kept = json.loads((source.data_dir / source.run / "seed.json").read_text())
            seed = kept["seed"]
        folder = source.data_dir / f"{name}_{seed}"
        (folder / "info").mkdir(parents=True, exist_ok=True)
        (folder / "seed.json").write_text(json.dumps({"seed": seed}))
        RunDir(folder, name).spec_file.write_text(json.dumps({name: {"env": {}}}))
        task = SimpleNamespace(folder=folder.name, spec_name=name, seed=seed)
        return SimpleNamespace(task=task, release=lambda: None)

    monkeypatch.setattr(trainings, "PreparedRun", stand_run)
    monkeypatch.setattr(run_module, "pool_for", lambda plan, jobs: StandPool(lab))
    return lab


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"small": ppo(env__max_frame=1000)}))
    return RunSource(str(file), data_dir=tmp_path / "data")


@pytest.fixture
def begin(tmp_path, source, lab):
    """Begins a test of the spec against itself with another λ."""

    def make(place="data", **options):
        request = AbRequest(source, changed(source), **options)
        return AbRun.begin(make_plan(request), tmp_path / place)

    return make


def changed(source, *sets):
    return RunSource(source.spec_file, sets=(*sets, "agent.algorithm.lam=0.5"))


def reopened(run, **options):
    """The same test in another process."""
    run._lock.release()
    return AbRun.resume(run.folder, **options)


def outcome(run):
    """What a test has found, without what depends on the machine."""
    table = next(run.folder.glob("*_ab_df.csv")).read_text()
    return run.results.document(), table


def test_a_pair_has_one_seed_and_no_training_is_wasted(begin, lab):
    run = begin()
    run.study.run()
    results = run.results
    assert results.verdict.answer == "B"
    count = results.verdict.pairs
    assert sorted(lab.trained) == sorted(
        (label, seed) for label in "ab" for seed in range(count)
    )
    assert results.document()["trainings"] == 2 * count < 2 * results.allowed
    assert results.sentence.startswith("B is better by ")


@pytest.mark.medium
@pytest.mark.parametrize("effect", [0.0, 60.0])
@pytest.mark.parametrize("jobs", [3, 16])
def test_the_answer_does_not_depend_on_how_many_train_at_once(begin, lab, effect, jobs):
    lab.effect = effect
    alone = begin("one")
    alone.study.run()
    lab.jobs = jobs
    together = begin("many")
    together.study.run()
    without_count = [
        {key: value for key, value in found.items() if key != "trainings"}
        for found, _ in (outcome(alone), outcome(together))
    ]
    assert without_count[0] == without_count[1]
    assert outcome(alone)[1] == outcome(together)[1]
    if alone.results.verdict.answer == "B":
        assert outcome(alone)[0] == outcome(together)[0], "nothing was wasted"


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_test_that_is_killed_again_and_again_ends_as_one_that_is_not(
    begin, lab, jobs
):
    whole = begin("whole")
    whole.study.run()
    trained = len(lab.trained)
    lab.trained.clear()
    lab.jobs = jobs
    run = begin("killed")
    for ended in range(1, trained + 1):
        lab.killed_after = ended
        with suppress(Killed):
            run.study.run()
        run = reopened(run)
    lab.killed_after = None
    run.study.run()
    assert outcome(run) == outcome(whole)
    assert len(lab.trained) == trained


def test_a_training_is_found_again_whose_spec_has_a_name_that_no_file_may_have(
    begin, lab, source
):
    file = Path(source.spec_file)
    file.write_text(file.read_text().replace("small", "my small"))
    run = begin()
    lab.killed_after = 0
    with suppress(Killed):
        run.study.run()
    resumed = run.source(run.study_state.trials[0])
    assert resumed.run is not None
    assert resumed.name() == run.planned[0].spec.name == "my small_a"


def test_what_has_its_answer_trains_nothing_more(begin, lab):
    run = begin()
    run.study.run()
    before = outcome(run)
    lab.trained.clear()
    later = reopened(run)
    later.study.run()
    assert (lab.trained, outcome(later)) == ([], before)


def test_an_undecided_test_goes_on_with_more_seeds_as_if_it_had_had_them(begin, lab):
    lab.effect = 18.0
    few = begin("few", seeds=8)
    few.study.run()
    assert few.results.verdict.answer == "unknown"
    more = reopened(few, seeds=60)
    more.study.run()
    assert more.results.verdict.answer == "B"
    at_once = begin("at_once", seeds=60)
    at_once.study.run()
    assert outcome(more) == outcome(at_once)
    assert len(reopened(more).plan.seeds) == 60, "the folder keeps the new number"
    with pytest.raises(UsageError, match="--seeds 10: 60 were allowed"):
        reopened(more, seeds=10)


def test_a_training_that_fails_takes_its_pair_away_and_the_rest_goes_on(begin, lab):
    lab.fails = (("b", 1),)
    run = begin()
    run.study.run()
    results = run.results
    assert results.verdict.answer == "B"
    ((planned, why),) = results.failures
    assert (planned.label, why) == ("B, seed 1", "NaN in the loss")
    assert results.sentence.endswith("; without 1 seed under which a training failed")
    assert 1 not in results.paired_returns().seeds


def test_a_test_gives_up_when_trainings_go_on_failing(begin, lab):
    lab.fails = tuple(("b", seed) for seed in range(20))
    run = begin()
    run.study.run()
    assert len(lab.trained) == 6
    assert run.results.sentence.startswith("given up after 3 failed trainings; ")
    lab.fails = ()
    later = reopened(run)
    later.study.run()
    assert later.results.verdict.answer == "B", "a resume repeats what has failed"
    assert later.results.failures == []


def test_a_training_without_an_episode_counts_as_failed(begin, lab, monkeypatch):
    monkeypatch.setattr(
        lab, "score", lambda name, seed: None if seed == 0 else 50.0 + seed + len(name)
    )
    run = begin(smallest=5.0)
    run.study.run()
    assert {why for _, why in run.results.failures} == {
        "no episode ended in its budget, so it has no final return"
    }


def test_lists_show_a_test_and_whether_it_is_done(begin, lab, tmp_path):
    run = begin()
    (listed,) = overviews_in(tmp_path / "data")
    assert (listed.mode, listed.status) == ("A against B, 0 trainings", "training")
    run._lock.release()
    (listed,) = overviews_in(tmp_path / "data")
    assert listed.status == "stopped"
    run.study.run()
    (listed,) = overviews_in(tmp_path / "data")
    assert listed.status == "done"


def test_each_command_resumes_its_own_folders(begin, lab):
    run = begin()
    run._lock.release()
    with pytest.raises(UsageError, match="slm-lab ab --resume"):
        CompareRun.resume(run.folder)


WRONG = {
    "the same spec": ([], {}, "A and B are the same spec"),
    "another environment": (
        ["env.name=Acrobot-v1"],
        {},
        "env.name = 'Acrobot-v1': must be that of A, 'CartPole-v1'",
    ),
    "another budget": (["env.max_frame=500"], {}, "env.max_frame = 500: must be that"),
    "too few seeds": (
        ["agent.algorithm.lam=0.5"],
        {"seeds": 5},
        "--seeds 5: with a confidence of 0.95 nothing is known before 6 seeds",
    ),
    "too few seeds for so much confidence": (
        ["agent.algorithm.lam=0.5"],
        {"seeds": 8, "confidence": 0.9999},
        "allow at least",
    ),
    "certainty": ([], {"confidence": 1.0}, "--confidence 1: must be"),
    "a smallest difference of nothing": ([], {"smallest": 0.0}, "--smallest 0: must"),
    "several seeds in one training": (
        ["meta.max_session=2"],
        {},
        "meta.max_session: must be 1: the command counts the seeds",
    ),
    "a cluster": (["meta.cluster=auto"], {}, "a test trains on this machine"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_tested_is_refused_in_one_line(what, source, tmp_path):
    sets, options, words = WRONG[what]
    b = RunSource(source.spec_file, sets=tuple(sets))
    with pytest.raises(LabError) as error:
        make_plan(AbRequest(source, b, **options))
    assert words in str(error.value)
    assert not (tmp_path / "data").exists()


def test_a_and_b_get_the_seeds_that_other_commands_would_give_them(source):
    plan = make_plan(AbRequest(source, changed(source), seeds=7))
    assert plan.seeds == tuple(range(7))
    seeded = RunSource(source.spec_file, seed=100)
    plan = make_plan(AbRequest(seeded, changed(source), seeds=7))
    assert plan.seeds == tuple(range(100, 107))
    assert {planned.seed for planned in plan.trainings[:2]} == {100}
