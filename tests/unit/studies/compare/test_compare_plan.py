"""What a comparison is going to run."""

import json

import pytest

from slm_lab.charts.speeds import BASELINE, Way
from slm_lab.core.errors import SpecError, UsageError
from slm_lab.core.recorded import differences
from slm_lab.records.comparison import COMPARE, KINDS
from slm_lab.records.run_source import RunSource
from slm_lab.spec.load import load_specs
from slm_lab.spec.modes import MODES
from slm_lab.studies.compare import folder as folder_module
from slm_lab.studies.compare import modes as modes_module
from slm_lab.studies.compare.folder import allowed_imports, read_plan
from slm_lab.studies.compare.modes import CompareRequest, make_plan
from tests.support import ppo, reinforce, soft
from tests.unit.records.runs import TERMS


@pytest.fixture
def plan_of(tmp_path, monkeypatch):
    """Makes the plan for a spec, on an idle machine with two cores."""
    for module in (modes_module, folder_module):
        monkeypatch.setattr(module, "usable_cores", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))

    def make(
        spec,
        modes=("synced", "shared"),
        workers=(1, 2),
        *,
        seeds=2,
        threshold=None,
        **source,
    ):
        file = tmp_path / "spec.json"
        file.write_text(json.dumps({"small": spec}))
        source = RunSource(str(file), "small", **source)
        return make_plan(CompareRequest(source, modes, workers, seeds, threshold))

    return make


def optimizers(spec):
    return {
        each.optim_spec.name for each in (spec.agent.net, spec.agent.critic_net) if each
    }


def adam(**changes):
    return ppo(agent__net__optim_spec={"name": "Adam", "lr": 1e-3}, **changes)


def test_variants_differ_from_the_baseline_only_in_mode_and_workers(plan_of):
    plan = plan_of(ppo())
    assert list(plan.ways.values()) == [
        Way(BASELINE, 1),
        Way("synced", 1),
        Way("synced", 2),
        Way("shared", 1),
        Way("shared", 2),
    ]
    names = [spec.name for spec in plan.specs.values()]
    assert names[:3] == ["small_false", "small_synced_1", "small_synced_2"]
    for label, spec in plan.specs.items():
        way = plan.ways[label]
        assert label == way.label
        found = {
            path: new
            for path, _, new in differences(plan.baseline.to_json(), spec.to_json())
        }
        assert found.pop("name", spec.name) == spec.name
        alone = way.mode == BASELINE
        expected = {} if alone else {"meta.distributed": way.mode}
        expected |= {"meta.max_session": way.workers} if way.workers > 1 else {}
        assert found == expected


def test_whatever_the_spec_says_the_baseline_is_one_process(plan_of):
    together = ppo(meta__distributed="synced", meta__max_session=4, meta__max_run=3)
    meta = plan_of(together).baseline.meta
    assert (meta.distributed, meta.num_sessions) == (False, 1)
    assert plan_of(together).specs == plan_of(ppo(meta__max_session=3)).specs


@pytest.mark.parametrize("modes", [("synced",), ("shared",), ("all_reduce", "shared")])
def test_where_one_mode_needs_a_global_twin_all_variants_have_it_and_a_note_says_so(
    plan_of, modes
):
    plan = plan_of(adam(), modes, (1,))
    assert all(optimizers(spec) == {"GlobalAdam"} for spec in plan.specs.values())
    (note,) = plan.notes
    for words in (
        "agent.net.optim_spec",
        "Adam replaced by GlobalAdam",
        "all variants",
    ):
        assert words in note


def test_the_optimizer_inside_lookahead_gets_its_global_twin(plan_of):
    lookahead = {"name": "Lookahead", "optimizer": "Adam", "lr": 1e-3}
    plan = plan_of(ppo(agent__net__optim_spec=lookahead), ("shared",), (1,))
    for spec in plan.specs.values():
        _, inside = spec.agent.net.optim_spec.stepping("")
        assert inside.name == "GlobalAdam"
    (note,) = plan.notes
    assert "agent.net.optim_spec.optimizer" in note


def test_an_optimizer_that_every_mode_can_use_stays(plan_of):
    for plan in (plan_of(ppo()), plan_of(adam(), ("all_reduce",))):
        assert plan.notes == ()
        assert plan.baseline.agent.net.optim_spec.args["lr"] == 1e-3
    assert optimizers(plan.baseline) == {"Adam"}


def test_a_warning_about_a_variant_is_printed_once(plan_of, caplog):
    """Two workers gather a rollout each: the budget ends before either of them has
    one."""
    raw = ppo(
        env__max_frame=80, agent__algorithm__time_horizon=16, meta__log_frequency=None
    )
    plan_of(raw, workers=(1, 2))
    (asked,) = caplog.messages
    assert asked.startswith("synced × 2: suspicious setting: env.max_frame")


def test_a_warning_about_the_baseline_is_not_repeated_for_variants(plan_of, caplog):
    plan_of(ppo(env__max_frame=40, agent__algorithm__time_horizon=32), workers=(1,))
    (asked,) = caplog.messages
    assert "suspicious setting: env.max_frame" in asked


def test_a_spec_for_a_cluster_is_refused_with_the_fix(plan_of):
    with pytest.raises(
        SpecError, match=r"measures this machine.*-s meta\.cluster=null"
    ):
        plan_of(
            ppo(
                meta__cluster="auto",
                meta__distributed="all_reduce",
                meta__max_session=2,
            )
        )
    assert plan_of(ppo(meta__cluster="auto"), sets=("meta.cluster=null",))


def test_all_problems_of_all_variants_come_at_once(plan_of):
    spec = soft("SoftActorCritic", agent__net__optim_spec={"name": "SGD", "lr": 1e-3})
    with pytest.raises(SpecError) as caught:
        plan_of(spec, ("synced", "shared", "actor_learner"), (1, 2))
    messages = [str(problem) for problem in caught.value.problems]
    assert len(set(messages)) == len(messages)
    assert sum("SGD" in message for message in messages) == 2, (
        "one of each HogwildStrategy mode"
    )


def test_by_default_all_modes_are_compared_with_as_many_workers_as_cores(
    plan_of, monkeypatch
):
    for cores, counts in ((1, {1}), (2, {1, 2}), (6, {1, 2, 4})):
        monkeypatch.setattr(modes_module, "usable_cores", lambda cores=cores: cores)
        spec = ppo(agent__algorithm__minibatch_size=8)
        variants = list(plan_of(spec, None, None).ways.values())[1:]
        assert [v.mode for v in variants][:: len(counts)] == MODES.names()
        assert {v.workers for v in variants} == counts
        assert not any(v.crowded for v in variants)
        more = plan_of(spec, ("synced",), (1, cores + 1)).ways.values()
        assert [v.workers for v in more if v.crowded] == [cores + 1]


def test_seeds_follow_the_given_seed(plan_of):
    assert plan_of(ppo(meta__random_seed=7), seeds=3).seeds == (7, 8, 9)
    assert plan_of(ppo(meta__random_seed=7), seeds=2, seed=1).seeds == (1, 2)
    drawn = plan_of(ppo(meta__random_seed=None)).seeds
    assert drawn != plan_of(ppo(meta__random_seed=None)).seeds


def test_a_machine_that_is_not_idle_is_reported(plan_of, monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (1.26, 0.0, 0.0))
    (note,) = plan_of(ppo()).notes
    assert "1.3 of the 2 cores" in note


def test_a_plan_is_read_back_as_it_was_written_and_its_file_holds_ordinary_specs(
    plan_of, tmp_path
):
    plan = plan_of(adam(), imports=("a.module",), threshold=-180.0)
    plan.file(tmp_path).write_text(json.dumps(plan.to_json()))
    assert read_plan(tmp_path, COMPARE, plan.imports) == plan
    assert list(plan.specs)[:2] == ["one process", "synced × 1"]
    assert allowed_imports(tmp_path, ("a",), trust=False) == ("a.module", "a")
    specs = load_specs(plan.file(tmp_path))
    assert specs == {spec.name: spec for spec in plan.specs.values()}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
@pytest.mark.parametrize("names_kind", [True, False])
def test_a_plan_of_any_kind_is_read_back_also_if_an_earlier_version_wrote_it(
    plan_of, tmp_path, kind, names_kind
):
    plan = plan_of(ppo())._replace(kind=kind, terms=TERMS[kind.word])
    content = json.loads(json.dumps(plan.to_json()))
    assert content["_compare"]["kind"] == kind.word
    if not names_kind:
        del content["_compare"]["kind"]
    plan.file(tmp_path).write_text(json.dumps(content))
    assert read_plan(tmp_path, kind) == plan


@pytest.mark.parametrize("label", [None, "with a low λ"])
def test_the_label_of_a_variant_is_in_the_plan_or_follows_from_its_mode(
    plan_of, tmp_path, label
):
    plan = plan_of(ppo(), ("synced",), (4,))
    content = json.loads(json.dumps(plan.to_json()))
    entry = content["_compare"]["variants"][1]
    del entry["label"]
    if label is not None:
        entry["label"] = label
    plan.file(tmp_path).write_text(json.dumps(content))
    labels = ["one process", label or "synced × 4 †"]
    assert list(read_plan(tmp_path, COMPARE).specs) == labels


def test_a_plan_of_another_machine_is_refused(plan_of, tmp_path, monkeypatch):
    plan = plan_of(ppo())
    plan.file(tmp_path).write_text(json.dumps(plan.to_json()))
    monkeypatch.setattr(folder_module, "usable_cores", lambda: 4)
    with pytest.raises(UsageError, match=r"begun on 2 cores.*this machine has 4"):
        read_plan(tmp_path, COMPARE)


def test_unnamed_modes_that_do_not_fit_are_left_out_with_the_reason(plan_of):
    plan = plan_of(reinforce(), None)
    assert {way.mode for way in plan.ways.values()} == {*MODES.names(), BASELINE} - {
        "actor_learner"
    }
    (note,) = [note for note in plan.notes if "left out" in note]
    assert note.startswith("actor_learner is left out: agent.memory.name")
    with pytest.raises(SpecError, match=r"agent\.memory\.name"):
        plan_of(reinforce(), ("actor_learner",))
