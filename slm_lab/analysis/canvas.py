"""A picture to draw lines, areas and words on, in pixels from its lower left corner.

It takes matplotlib's rasteriser and fonts alone: axes and their tick objects are most of the time
that a picture takes there, and half of the import.
"""

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, final

import numpy as np

from slm_lab.core.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.backend_bases import GraphicsContextBase
    from matplotlib.font_manager import FontProperties
    from matplotlib.path import Path
    from matplotlib.transforms import Transform

Align: TypeAlias = Literal["left", "centre", "right"]

_SHIFT: dict[Align, float] = {"left": 0.0, "centre": 0.5, "right": 1.0}
_COLOURS = 256  # of a PNG with a palette, a third of the size of one without
_ALMOST_WHITE = 252
_SMALLEST = 9  # letters that can be read


class _Rasteriser(Protocol):
    """What a canvas needs of matplotlib's RendererAgg, which has no types of its own."""

    def new_gc(self) -> "GraphicsContextBase": ...
    def draw_path(
        self,
        gc: "GraphicsContextBase",
        path: "Path",
        transform: "Transform",
        fill: tuple[float, float, float] | None = None,
        /,
    ) -> None: ...
    def draw_text(
        self,
        gc: "GraphicsContextBase",
        x: float,
        y: float,
        s: str,
        prop: "FontProperties",
        angle: float,
        /,
    ) -> None: ...
    def get_text_width_height_descent(
        self, s: str, prop: "FontProperties", ismath: bool, /
    ) -> tuple[float, float, float]: ...
    def buffer_rgba(self) -> memoryview: ...


@final
class Canvas:
    """A white picture of `width` × `height` pixels. Colours are #RRGGBB, sizes are in pixels."""

    def __init__(self, width: int, height: int) -> None:
        from matplotlib.backends.backend_agg import RendererAgg

        self.width, self.height = width, height
        make: Callable[[int, int, float], _Rasteriser] = RendererAgg
        self._agg = make(width, height, 72.0)  # dots per inch: a point is a pixel
        corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64)
        self.area(corners, "#FFFFFF")

    def line(
        self,
        points: FloatArray,
        colour: str,
        width: float,
        opacity: float = 1.0,
        dash: Sequence[float] | None = None,
    ) -> None:
        """Joins `points` (P, 2), broken where one is NaN. `dash` is pairs of lengths, on and off.

        A line of two points that runs along an axis is moved onto whole pixels.
        """
        from matplotlib.path import Path
        from matplotlib.transforms import IdentityTransform

        gc = self._agg.new_gc()
        gc.set_foreground(colour)
        gc.set_linewidth(width)
        gc.set_alpha(opacity)
        gc.set_joinstyle("round")
        gc.set_dashes(0, None if dash is None else list(dash))
        self._agg.draw_path(gc, Path(points), IdentityTransform())

    def area(self, outline: FloatArray, colour: str, opacity: float = 1.0) -> None:
        """Fills the polygon with the corners `outline` (P, 2)."""
        from matplotlib.colors import to_rgb
        from matplotlib.path import Path
        from matplotlib.transforms import IdentityTransform

        gc = self._agg.new_gc()
        gc.set_linewidth(0)
        gc.set_alpha(opacity)
        self._agg.draw_path(gc, Path(outline), IdentityTransform(), to_rgb(colour))

    def dot(self, x: float, y: float, colour: str, diameter: float, opacity: float = 1.0) -> None:
        """A filled circle around (x, y)."""
        angle = np.linspace(0, 2 * np.pi, 33)
        circle = np.column_stack([np.cos(angle), np.sin(angle)]) * diameter / 2
        self.area(circle + np.array([x, y]), colour, opacity)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float,
        colour: str,
        *,
        align: Align = "left",
        bold: bool = False,
        upwards: bool = False,
    ) -> None:
        """Writes one line whose baseline starts at, is centred on, or ends at (x, y)."""
        if not text:
            return
        back = _SHIFT[align] * self.text_width(text, size, bold=bold) if align != "left" else 0.0
        x, y = (x, y - back) if upwards else (x - back, y)
        gc = self._agg.new_gc()
        gc.set_foreground(colour)
        font = _font(size, bold)
        self._agg.draw_text(gc, x, self.height - y, text, font, 90.0 if upwards else 0.0)

    def text_width(self, text: str, size: float, *, bold: bool = False) -> float:
        """Pixels from the beginning of `text` to its end."""
        if not text:
            return 0.0
        width, _, _ = self._agg.get_text_width_height_descent(text, _font(size, bold), False)
        return width

    def fitting(self, text: str, size: float, room: float, *, bold: bool = False) -> float:
        """The size of letters, `size` at most, with which `text` fits into `room` pixels."""
        while size > _SMALLEST and self.text_width(text, size, bold=bold) > room:
            size -= 1  # hinted letters do not shrink in proportion
        return size

    def png(self) -> bytes:
        """The picture as the bytes of a PNG file."""
        from PIL import Image

        picture = Image.fromarray(np.asarray(self._agg.buffer_rgba()))
        few = picture.convert("RGB").quantize(
            _COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
        )
        # A colour of the palette is the mean of those that it stands for: white came out as 254.
        palette = few.getpalette() or []
        few.putpalette([255 if part >= _ALMOST_WHITE else part for part in palette])
        buffer = io.BytesIO()
        few.save(buffer, format="png", compress_level=4)
        return buffer.getvalue()


def _font(size: float, bold: bool) -> "FontProperties":
    from matplotlib.font_manager import FontProperties

    return FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal", size=size)
