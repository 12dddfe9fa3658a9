"""The error about a file of the lab whose content is not what the lab has written."""

import json
import re
from typing import NamedTuple

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.records.training_record import read_record, write_record
from slm_lab.records.validated import validated
from tests.unit.studies.benchmark.records import record


class Part(NamedTuple):
    size: int
    names: tuple[str, ...]


class Whole(NamedTuple):
    parts: tuple[Part, ...]
    limit: float | None


WHOLE = {"parts": [{"size": 1, "names": ["a", "b"]}], "limit": 3}


def test_json_becomes_the_typed_value(tmp_path):
    whole = validated(Whole, json.dumps(WHOLE), tmp_path, "begin anew")
    assert whole == Whole((Part(1, ("a", "b")),), 3.0)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"limit": "3"}, "plan.limit = '3': must be a number"),
        ({"parts": {}}, "plan.parts = {}: must be a list"),
        ({"parts": [{"size": 1}]}, "plan.parts.0.names: is missing"),
        (
            {"parts": [{"size": 1, "names": [2]}]},
            "plan.parts.0.names.0 = 2: must be a string",
        ),
    ],
)
def test_the_error_has_file_key_value_and_fix(changed, problem, tmp_path):
    content = json.dumps(WHOLE | changed)
    with pytest.raises(UsageError) as error:
        validated(Whole, content, tmp_path / "a.json", "begin anew", "plan")
    assert str(error.value) == f"{tmp_path}/a.json is damaged: {problem}; begin anew"


@pytest.mark.parametrize("content", ["", "[", '{"parts": ', "\0"])
def test_a_text_that_is_no_json_has_no_empty_key_in_its_error(content, tmp_path):
    with pytest.raises(UsageError, match=r"a\.json is damaged: Invalid JSON: [^:]+; f"):
        validated(Whole, content, tmp_path / "a.json", "fix it")


@pytest.mark.parametrize("letters", [0, 1, 40])
def test_a_result_of_a_benchmark_that_was_cut_names_its_file(letters, tmp_path):
    file = write_record(tmp_path, record())
    file.write_bytes(file.read_bytes()[:letters])
    with pytest.raises(UsageError) as error:
        read_record(file)
    expected = rf"{re.escape(str(file))} is damaged: Invalid JSON: [^:]+; put back"
    assert re.match(expected, str(error.value))
