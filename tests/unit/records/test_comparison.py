"""Every kind of comparison on disk, also as earlier versions wrote it."""

import json

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.records.comparison import KINDS, ComparisonRecord
from slm_lab.records.overview import overviews_in
from slm_lab.records.run_record import RunStatus
from slm_lab.studies.compare.folder import read_plan
from tests.unit.records.runs import write_comparison, write_ended

LISTED = {
    "compare": ("comparison, 0 of 2 trainings", 2000),
    "ab": ("A against B, 0 trainings", 2000),
    "treat": ("treatment of ill, 2 trainings", 6000),
}
"""Mode and budget in a list of runs, by the word of a kind."""
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)


@each_kind
@pytest.mark.parametrize("names_kind", [True, False])
def test_the_list_of_runs_names_the_kind_and_its_budget(tmp_path, kind, names_kind):
    write_comparison(tmp_path, kind, names_kind)
    (listed,) = overviews_in(tmp_path)
    assert (listed.mode, listed.budget) == LISTED[kind.word]
    assert (listed.status, listed.seeds) == (RunStatus.STOPPED, 2)


@each_kind
def test_it_has_ended_when_its_result_says_so_else_when_all_have_finished(
    tmp_path, kind
):
    folder = write_comparison(tmp_path, kind)
    for seed in range(2):
        write_ended(folder, f"small_{seed}")
    if kind.has_result:
        (listed,) = overviews_in(tmp_path)
        assert listed.status is RunStatus.STOPPED
        (folder / kind.result_name("small")).write_text(json.dumps({"ended": True}))
    (listed,) = overviews_in(tmp_path)
    assert listed.status is RunStatus.DONE


def test_a_kind_of_a_later_version_is_listed_by_its_word_and_not_resumed(tmp_path):
    folder = write_comparison(tmp_path, KINDS[0])
    comparison = ComparisonRecord.at(folder)
    plan = json.loads(comparison.plan_file.read_text())
    plan["_compare"]["kind"] = "duel"
    comparison.plan_file.write_text(json.dumps(plan))
    (listed,) = overviews_in(tmp_path)
    assert (listed.mode, listed.status) == (
        "duel, 0 of 2 trainings",
        RunStatus.STOPPED,
    )
    with pytest.raises(UsageError, match=r"of the kind 'duel'.*update slm-lab"):
        read_plan(folder, KINDS[0])


@each_kind
def test_its_table_and_its_answer_are_read_once_they_are_written(tmp_path, kind):
    folder = write_comparison(tmp_path, kind)
    comparison = ComparisonRecord.at(folder)
    for read in ("table", "trainings_table", "result"):
        with pytest.raises(UsageError, match=rf"has no small_{kind.word}.* yet"):
            getattr(comparison, read)
    (folder / f"small_{kind.word}_df.csv").write_text("variant,score\nA,1.5\n")
    (folder / f"small_{kind.word}_trainings_df.csv").write_text("seed\n0\n1\n")
    comparison.result_file.write_text(json.dumps({"ended": True}))
    assert comparison.table.to_dict("list") == {"variant": ["A"], "score": [1.5]}
    assert comparison.trainings_table["seed"].tolist() == [0, 1]
    assert comparison.result == {"ended": True}
