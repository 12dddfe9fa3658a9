"""The page on treatments has the numbers of the bench."""

from pathlib import Path

from bench.treat import ILLNESSES, read_table, table_lines

PAGE = Path(__file__).parents[3] / "docs" / "tutorial" / "treat.md"


def test_the_page_has_every_row_of_the_bench():
    rows = read_table()
    page = PAGE.read_text(encoding="utf-8")
    assert [row["illness"] for row in rows] == [each.name for each in ILLNESSES]
    for line in table_lines(rows):
        assert line in page
    found = sum(bool(row["found"]) for row in rows)
    cured = sum(row["verdict"] == "cured" for row in rows)
    assert (
        f"found in {found} of {len(rows)}, and cured by its own remedy in {cured}"
        in page
    )
    assert found >= 17
    assert cured >= 12
