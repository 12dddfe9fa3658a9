"""The trainings of a plan, of any kind."""

import json
from types import SimpleNamespace

from slm_lab.records.comparison import PLAN_BLOCK, PLAN_FILE, ComparisonRecord
from slm_lab.studies.compare.trainings import PlannedTrainings


def test_the_document_lists_the_picture_of_the_whole_comparison_too(tmp_path):
    graphs = [
        f"small_compare{end}.png"
        for end in ("", "_mean_returns_vs_frames", "_speed_up")
    ]
    for name in (*graphs, "small_compare.html", "other.png"):
        (tmp_path / name).touch()
    plan_file = tmp_path / PLAN_FILE.format("small")
    plan_file.write_text(json.dumps({PLAN_BLOCK: {"kind": "compare"}}))
    run = SimpleNamespace(
        folder=tmp_path,
        compare_folder=SimpleNamespace(record=ComparisonRecord(plan_file)),
    )
    document = PlannedTrainings.document(run, {"variants": []}, 0)
    assert document["graphs"] == [str(tmp_path / name) for name in graphs]
