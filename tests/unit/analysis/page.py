"""What is inside a page or a picture, for the tests of this folder."""

import base64
import io
import json

import numpy as np
from PIL import Image


def plot(page):
    """The traces and the layout inside a page, with arrays as lists, None for NaN."""
    call = page.decode().split("Plotly.newPlot(")[1].split(",", 1)[1].lstrip()
    decoder = json.JSONDecoder(object_hook=_decoded)
    traces, end = decoder.raw_decode(call)
    layout, _ = decoder.raw_decode(call[end:].lstrip(", \n"))
    return traces, layout


def _decoded(found):
    if "bdata" not in found:
        return found
    values = np.frombuffer(base64.b64decode(found["bdata"]), found["dtype"])
    shape = tuple(map(int, found.get("shape", str(values.size)).split(",")))
    return np.where(np.isnan(values), None, values).reshape(shape).tolist()


def domains(layout):
    """Left, right, bottom and top of each panel, as shares of the page's plot."""
    names = [key.removeprefix("xaxis") for key in layout if key.startswith("xaxis")]
    return [
        (*layout[f"xaxis{n}"]["domain"], *layout[f"yaxis{n}"]["domain"]) for n in names
    ]


def words_of(layout):
    return " ".join(note["text"] for note in layout["annotations"])


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def curves_of(figure):
    """The curves of all panels."""
    return [curve for panel in figure.panels for curve in panel.curves]
