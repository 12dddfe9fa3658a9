"""Numbers as text."""

import pytest

from slm_lab.core.text import short_count


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (1024, "1,024"),
        (200_000, "200k"),
        (1_500_000, "1.5M"),
        (1_234_567, "1,234,567"),
        (10_000_000, "10M"),
        (12_345_670, "12,345,670"),
        (12_340_000, "12.34M"),
        (1_234_567_890, "1,234,567,890"),
        (1_230_000_000, "1.23G"),
        (2_000_000_000, "2G"),
    ],
)
def test_round_numbers_are_short_and_others_exact(count, text):
    assert short_count(count) == text
