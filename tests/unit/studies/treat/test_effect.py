"""When the returns with a remedy are better than those without."""

import numpy as np
import pytest

from slm_lab.studies.treat.effect import Returns

NONE = np.empty(0)
LOW = np.linspace(0, 10, 20)
HIGH = np.linspace(8.5, 18.5, 20)


@pytest.mark.parametrize(
    ("treated", "untreated", "random", "better"),
    [
        (HIGH, LOW, None, True),
        (LOW, HIGH, None, False),
        (LOW + 6, LOW, None, False),  # its lowest rows are among the untreated
        (LOW, NONE, None, True),
        (NONE, LOW, None, False),
        (NONE, NONE, None, False),
        (HIGH, LOW, 5.0, True),
        (HIGH, LOW, 12.5, False),  # random actions have as much
        (-LOW, -HIGH, -6.0, True),
        (-LOW, -HIGH, -5.2, False),
    ],
)
def test_nine_tenths_above_nine_tenths_and_above_random(
    treated, untreated, random, better
):
    assert Returns(treated, untreated, random).are_better is better
