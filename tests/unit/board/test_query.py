"""The choices of a page and the address that holds them."""

from pathlib import Path

import pytest

from slm_lab.board.query import Query, file_link, run_link

ROOT = Path("data")


@pytest.mark.parametrize(
    "query",
    [
        Query(),
        Query(runs=("a", "b/c & d?", "é#%")),
        Query(
            run="x",
            trial="3",
            session="2",
            y="loss",
            x="wall_t",
            of="iqm",
            smooth="0",
            q="done",
        ),
    ],
)
def test_a_query_survives_a_round_trip_through_its_address(query):
    assert Query.parse(query.search) == query


def test_only_choices_that_differ_from_the_defaults_are_in_the_address():
    assert Query().search == ""
    assert Query(x="wall_t").search == "?x=wall_t"


@pytest.mark.parametrize(
    "search",
    [
        None,
        "",
        "?",
        "?x=furlongs&of=median&smooth=9",
        "?trial=-1&session=1e9",
        "?_fields=1&axis=2",
        "?y=frame",
    ],
)
def test_unknown_words_leave_the_defaults(search):
    assert Query.parse(search) == Query()


def test_links_quote_names():
    name = '"><img src=x onerror=alert(1)>&run=y'
    assert not set("<>\"'") & set(run_link(name) + file_link(ROOT, ROOT / name))
    assert Query.parse(run_link(name, 2).removeprefix("/run")) == Query(
        run=name, trial="2"
    )
