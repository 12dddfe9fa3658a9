"""Untrusted files: any content gives one line within a second."""

import itertools
import json
import time

import pytest

from slm_lab.core.errors import MAX_PRINTED, Problem, SpecError
from slm_lab.spec.limits import (
    JSON_BYTES,
    JSON_VALUES,
    LONGEST_KEY,
    MOST_KEYS,
    MOST_LEVELS,
    YAML_VALUES,
)
from slm_lab.spec.load import check_file, load_spec
from slm_lab.spec.read import read_file
from tests.support import ppo
from tests.unit.spec.spec_data import PPO

TOO_DEEP = (
    f"file: is nested too deeply: more than {MOST_LEVELS} blocks and lists inside "
    "each other"
)
TOO_LARGE = (
    f"file: has more than {JSON_BYTES:,} bytes, the most that a spec file may have"
)
TOO_MANY = "file: holds more than {:,} values, the most that a spec file may hold"
LETTERS = "abcdefghijklmnopqrstu"


def doubling(block):
    """A YAML file in which each block holds the one before it twice."""
    pairs = itertools.pairwise(LETTERS)
    return "a: &a {x: 1}\n" + "".join(
        f"{b}: &{b} {block.format(a)}\n" for a, b in pairs
    )


ATTACKS = {
    "bomb.yaml": (doubling("[*{0}, *{0}]"), TOO_MANY.format(YAML_VALUES)),
    "maps.yaml": (doubling("{{x: *{0}, y: *{0}}}"), TOO_MANY.format(YAML_VALUES)),
    "merges.yaml": (doubling("{{<<: [*{0}, *{0}]}}"), TOO_MANY.format(YAML_VALUES)),
    "itself.yaml": ("s: &s {agent: *s, env: *s}\n", TOO_DEEP),
    "deep.yaml": ("s: " + "[" * 400_000, TOO_DEEP),
    "list.yaml": ("s: [" + "1, " * 150_000 + "1]", TOO_MANY.format(YAML_VALUES)),
    "words.yaml": (
        "s: " + "x " * 240_000,
        "s: holds 479,999 characters (x x x x x x x x x x …); the most is 20,000",
    ),
    "deep.json": ('{"s": {"env": ' + "[" * 1000 + "]" * 1000 + "}}", TOO_DEEP),
    "list.json": (
        json.dumps({"s": {"env": [1] * 300_000}}),
        TOO_MANY.format(JSON_VALUES),
    ),
    "quotes.json": (
        '{"a": "' + '\\"' * 200_000,
        "line 1: is not JSON: Unterminated string starting at (column 7)",
    ),
    "comments.json": (
        "/* " * 1_300_000,
        "line 1: is not JSON: Expecting value (column 1)",
    ),
    "slashes.json": (
        '{"a": 1 ' + "/" * 3_900_000,
        "line 1: is not JSON: Expecting ',' delimiter (column 3900009)",
    ),
    "spaces.json": (
        '{"a": 1' + ", " * 1_000_000 + "}",
        "line 1: is not JSON: Expecting property "
        "name enclosed in double quotes (column 10)",
    ),
    "string.json": ('{"a": "' + "x" * 50_000_000 + '"}', TOO_LARGE),
    "specs.json": (
        json.dumps({f"s{i}": {"env": 1} for i in range(200_000)}),
        TOO_LARGE,
    ),
    "some_specs.json": (
        json.dumps({f"s{i}": {"env": 1} for i in range(20_000)}),
        f"file: holds 20,000 keys; a block may hold at most {MOST_KEYS}",
    ),
    "key.json": (
        json.dumps({"s": {"env": {"x" * 3_000_000: 1}}}),
        "s.env: has a key of 3,000,000 "
        f"characters (xxxxxxxxxxxxxxxxxxxx…); the most is {LONGEST_KEY}",
    ),
    "number.json": (
        '{"a": ' + "9" * 100_000 + "}",
        "file: holds a whole number of thousands of digits",
    ),
    "surrogate.json": (
        r'{"\ud800": {"env": 1}}',
        r"file: has half of a surrogate pair in '\ud800'",
    ),
    "value.json": (
        r'{"s": {"env": {"name": "\ud800"}}}',
        r"s.env.name: has half of a surrogate pair in '\ud800'",
    ),
    "key.yaml": (
        r'"\ud800": {env: 1}',
        r"file: has half of a surrogate pair in '\ud800'",
    ),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", ATTACKS)
def test_a_file_that_is_made_to_hang_the_reader_is_one_line_within_a_second(
    name, tmp_path
):
    text, expected = ATTACKS[name]
    path = tmp_path / name
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(SpecError) as caught:
        check_file(path)
    assert time.process_time() - began < 4  # a second, or four on a busy machine
    assert str(caught.value) == f"{name} has 1 problem\n  {expected}"


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_byte_order_mark_is_passed_over(suffix, tmp_path):
    path = (tmp_path / "s").with_suffix(suffix)
    path.write_text(json.dumps({"s": PPO}), encoding="utf-8-sig")
    assert load_spec(path).name == "s"


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_an_invalid_json_number_is_reported_with_its_key_and_line(word, tmp_path):
    path = tmp_path / "s.json"
    path.write_text(
        f'{{"s": {{\n"NaN": ["NaN", {{}}],\n"net": [1, {{"lr":\n {word}}}],}}}}'
    )
    with pytest.raises(SpecError) as caught:
        read_file(path)
    (problem,) = caught.value.problems
    assert str(problem) == f"line 4: s.net.1.lr is {word}, and must be a finite number"


@pytest.mark.parametrize("word", [".nan", ".inf", "-.INF"])
def test_a_non_finite_yaml_number_is_reported_with_its_key_and_line(word, tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(f"s:\n  agent: '.nan'\n  net:\n  - 1\n  - lr: {word}\n")
    with pytest.raises(SpecError) as caught:
        read_file(path)
    (problem,) = caught.value.problems
    assert str(problem) == f"line 5: s.net.1.lr is {word}, and must be a finite number"


def test_a_quote_in_a_string_does_not_confuse_the_reader(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(r'{"a": {"x": "\\", "y": "\",}", "z": [",]",],},}')
    assert read_file(path) == {"a": {"x": "\\", "y": '",}', "z": [",]"]}}


COMMENTED = r"""// "a": 1,
{ // {"b": 2}
  "url": "http://x//y", /* "url": ",
  two lines */ "glob": "/* no */ \\ // \",",
  "list": [1, 2, /* 3, */ ], // 4
}
/**/"""


def test_comments_are_passed_over_and_strings_that_hold_their_signs_are_kept(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(COMMENTED)
    assert read_file(path) == {
        "url": "http://x//y",
        "glob": '/* no */ \\ // ",',
        "list": [1, 2],
    }


@pytest.mark.parametrize("text", ["// x\n/* y\n z */ 1,\n", "/*\n*/ // \n1,\n"])
def test_lines_and_columns_of_errors_count_comments(text, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(f'{{"a": {text}/* 2 */ "b" 3}}')
    with pytest.raises(SpecError) as caught:
        read_file(path)
    (problem,) = caught.value.problems
    assert str(problem) == "line 4: is not JSON: Expecting ':' delimiter (column 13)"


def test_a_comment_without_an_end_is_an_error_in_its_line(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1,\n /* "b": 2}')
    with pytest.raises(SpecError, match=r"line 2: is not JSON: .* \(column 2\)"):
        read_file(path)


def test_of_very_many_problems_only_the_first_are_printed():
    error = SpecError("s", [Problem(f"k{i}", "is wrong") for i in range(1234)])
    lines = str(error).splitlines()
    assert lines[0] == "s has 1234 problems"
    assert lines[-2:] == [
        f"  k{MAX_PRINTED - 1}: is wrong",
        f"  and {1234 - MAX_PRINTED} more",
    ]
    assert len(error.problems) == 1234


NAME = "k" * 190
LONG = {
    "unknown keys": {f"{NAME}{i}": 1 for i in range(150)},
    "values": {"env": {"name": "y" * 19_000, "num_envs": ["q" * 19_000] * 50}},
    "layers": {"agent": {"net": {"type": "MLPNet", "hid_layers": ["a" * 2000] * 1000}}},
    "nested": {
        "agent": {f"{i}{NAME}": {f"{j}{NAME}": 1 for j in range(90)} for i in range(90)}
    },
    "variables": {
        "env": {"name": "${" + "v" * 19_000 + "}", "kwargs": ["${x}"] * 40_000}
    },
}


@pytest.mark.parametrize("name", LONG)
def test_each_line_of_a_message_about_a_large_file_has_a_bound(tmp_path, name):
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"small": {**ppo(), **LONG[name]}}))
    with pytest.raises(SpecError) as caught:
        load_spec(file, "small")
    assert max(map(len, str(caught.value).splitlines())) < 2500
    assert len(str(caught.value)) < 50_000


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_in_utf_16_is_told_to_be_saved_as_utf_8(tmp_path, encoding, suffix):
    file = tmp_path / f"spec.{suffix}"
    file.write_bytes(json.dumps({"small": ppo()}).encode(encoding))
    with pytest.raises(
        SpecError, match=r"file: is encoded in UTF-16 or UTF-32; save it as UTF-8$"
    ):
        read_file(file)


def test_a_byte_that_is_not_utf_8_is_named(tmp_path):
    file = tmp_path / "spec.json"
    file.write_bytes(b'{"small": "\xe9"}')
    with pytest.raises(
        SpecError, match="is not UTF-8: byte 11 is 0xe9; save it as UTF-8"
    ):
        read_file(file)
