import pytest

from slm_lab.core.errors import UsageError
from slm_lab.studies.run_mode import (
    RUN_MODES,
    RunMode,
    RunWords,
    parse_mode,
    parse_words,
)


@pytest.mark.parametrize("verb", ["dev", "train", "search"])
def test_a_mode_alone_begins_a_fresh_run(verb):
    assert parse_mode(verb) == RunMode(verb, None)


@pytest.mark.parametrize("verb", ["train", "search", "eval", "enjoy"])
@pytest.mark.parametrize("run", ["latest", "data/ppo_2026_01_01_000000", "/tmp/a@b"])
def test_the_text_after_the_at_names_the_run(verb, run):
    assert parse_mode(f"{verb}@{run}") == RunMode(verb, run)


@pytest.mark.parametrize("verb", ["eval", "enjoy"])
def test_a_mode_of_saved_agents_without_a_run_says_how_to_name_one(verb):
    with pytest.raises(UsageError, match="needs a run") as caught:
        parse_mode(verb)
    assert f"{verb}@latest" in str(caught.value)


@pytest.mark.parametrize(
    "mode", ["", "@latest", "dev@latest", "plot", "x@y", "train latest"]
)
def test_a_mode_that_does_not_exist_is_refused_with_those_that_do(mode):
    with pytest.raises(UsageError, match="there is no mode") as caught:
        parse_mode(mode)
    assert f'"{mode}"' in str(caught.value)
    assert all(known in str(caught.value) for known in RUN_MODES)


@pytest.mark.parametrize(
    ("mode", "nearest"),
    [
        ("Train", "train"),
        ("trian", "train"),
        ("train@", "train@latest"),
        ("trainx@y", "train@y"),
        ("eval@", "eval@latest"),
        ("evaluate", "eval@latest"),
        ("joy@data/ppo", "enjoy@data/ppo"),
    ],
)
def test_a_slip_is_refused_with_the_nearest_mode(mode, nearest):
    with pytest.raises(
        UsageError, match=f'there is no mode "{mode}"; did you mean {nearest}[?]'
    ):
        parse_mode(mode)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", RunWords(None, None, RunMode("train", None))),
        ("dev", RunWords(None, None, RunMode("dev", None))),
        ("eval@latest", RunWords(None, None, RunMode("eval", "latest"))),
        ("a.json", RunWords("a.json", None, RunMode("train", None))),
        ("a.json search", RunWords("a.json", None, RunMode("search", None))),
        ("a.json ppo", RunWords("a.json", "ppo", RunMode("train", None))),
        ("a.json ppo train@x", RunWords("a.json", "ppo", RunMode("train", "x"))),
        ("a.json train train", RunWords("a.json", "train", RunMode("train", None))),
    ],
)
def test_any_word_of_the_command_may_be_left_out(words, expected):
    assert parse_words(words.split()) == expected


def test_the_third_word_is_the_mode():
    with pytest.raises(UsageError, match='there is no mode "trian"'):
        parse_words(["a.json", "ppo", "trian"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian@latest", "did you mean train@latest?"),
        ("a.json evl@x", "did you mean eval@x?"),
        ("latest", "latest is a run; train@latest resumes it"),
        ("latest train", "latest is a run"),
    ],
)
def test_a_run_in_the_wrong_place_is_answered_with_the_mode_that_takes_it(
    words, message
):
    with pytest.raises(UsageError) as caught:
        parse_words(words.split())
    assert message in str(caught.value)
