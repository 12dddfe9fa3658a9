"""Which values a remedy tries, and on which specs."""

import pytest

from slm_lab.doctor.finding import advising, higher, lower, set_to

SPEC = {
    "agent": {"lr": 0.5, "epochs": 10, "one": 1, "zero": 0.0, "none": None, "on": True},
    "other": {"lr": 0.02},
}


@pytest.mark.parametrize(
    ("option", "settings"),
    [
        (lower("agent.lr"), [["agent.lr=0.05"]]),
        (lower("agent.lr", by=(10, 100)), [["agent.lr=0.05"], ["agent.lr=0.005"]]),
        (
            lower("agent.lr", by=(10, 100), most=0.001),
            [["agent.lr=0.05"], ["agent.lr=0.001"]],
        ),
        (
            lower("agent.lr", "other.lr"),
            [["agent.lr=0.05", "other.lr=0.002"]],
        ),
        (lower("agent.epochs", by=(4,)), [["agent.epochs=2"]]),
        (lower("agent.epochs", by=(100,)), [["agent.epochs=1"]]),
        (higher("agent.lr"), [["agent.lr=5.0"]]),
        (higher("agent.zero", least=0.01), [["agent.zero=0.01"]]),
        (higher("agent.zero"), []),
        (set_to("agent.none", {"a": [1]}), [['agent.none={"a": [1]}']]),
        (set_to("agent.on", True), []),
        (set_to("agent.on", words=" to something"), []),
        (lower("agent.one"), []),
        (lower("agent.zero"), []),
        (lower("agent.none"), []),
        (lower("agent.missing"), []),
        (set_to("agent.missing", 1), []),
    ],
)
def test_the_values_of_a_remedy(option, settings):
    assert [list(remedy.settings) for remedy in option.remedies(SPEC)] == settings


def test_advice_names_the_options_that_fit():
    options = (
        lower("agent.missing"),
        lower("agent.missing", "other.lr"),
        set_to("agent.on", True, words=" true"),
    )
    finding = advising("ill", "numbers", SPEC, *options, since=12.0, words="; or not")
    assert finding.advice == "lower other.lr, or set agent.on true; or not"
    assert finding.document() == {
        "what": "ill",
        "evidence": "numbers",
        "advice": finding.advice,
        "remedies": [["other.lr=0.002"]],
        "since": 12,
    }


def test_without_an_option_that_fits_other_words_advise():
    finding = advising(
        "ill", "", SPEC, lower("agent.missing"), otherwise="a longer run"
    )
    assert (finding.advice, finding.remedies) == ("a longer run", ())
