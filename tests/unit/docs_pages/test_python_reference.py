"""The reference of the Python API is what the docstrings say."""

import runpy
from pathlib import Path

import pytest

import slm_lab

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def page():
    return runpy.run_path(str(DOCS / "reference" / "python_reference.py"))[
        "reference"
    ]()


def test_the_page_in_docs_is_up_to_date(page):
    assert (DOCS / "python_reference.md").read_text(encoding="utf-8") == page, (
        "run: python docs/reference/python_reference.py > docs/python_reference.md"
    )


def test_the_page_has_every_public_name_with_its_members(page):
    headings = [
        line.lstrip("# ") for line in page.splitlines() if line.startswith("##")
    ]
    assert set(slm_lab.__all__) - {"__version__"} <= set(headings)
    for name in (heading for heading in headings if "." in heading):
        assert page.split(f"### {name}\n\n")[1].strip()[0] != "#", (
            f"{name} is not described"
        )
        assert "._" not in name
    members = {
        "Run.rows",
        "Run.wait",
        "Agent.act",
        "Agent.frame",
        "Search.run",
        "Episodes.returns",
    }
    assert members <= set(headings)
