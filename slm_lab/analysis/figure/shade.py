"""The scale of colours from little to much: dark is much."""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from slm_lab.core.types import FloatArray

# Viridis from the other side, without its yellow, which is lost on white: even steps of lightness,
# in an order that people with any colour vision see (Smith and van der Walt, CC0).
SHADES = (
    "#BDDF26", "#7AD151", "#44BF70", "#22A884", "#21918C",
    "#2A788E", "#355F8D", "#414487", "#482475", "#440154",
)  # fmt: skip
UNKNOWN = "#AAAAAA"
"""Of what has no value."""

_PARTS = np.array([[int(shade[i : i + 2], 16) for i in (1, 3, 5)] for shade in SHADES], np.float64)


def shade(share: float) -> str:
    """The colour as #RRGGBB of what lies at `share` of the way from the least to the most."""
    if np.isnan(share):
        return UNKNOWN
    at = np.linspace(0, 1, len(SHADES))
    parts = [round(float(np.interp(share, at, channel))) for channel in _PARTS.T]
    return "#" + "".join(f"{part:02X}" for part in parts)


@final
@dataclass(frozen=True, eq=False)
class Shading:
    """Colours that show `values` (n,), named `name`, between `ends`; grey where one is NaN."""

    name: str
    values: FloatArray
    ends: tuple[float, float]

    @cached_property
    def colours(self) -> list[str]:
        """(n,), as #RRGGBB."""
        low, high = self.ends
        return [shade((value - low) / (high - low)) for value in self.values.tolist()]
