"""The content of a page or a chart, for the tests of charts."""

import base64
import json

import numpy as np


def plots(page):
    """The traces and the layout of each graph of a page, with arrays as lists, None for
    NaN."""
    decoder = json.JSONDecoder(object_hook=_decoded)
    graphs = []
    for call in page.decode().split("Plotly.newPlot(")[1:]:
        text = call.split(",", 1)[1].lstrip()
        traces, end = decoder.raw_decode(text)
        layout, _ = decoder.raw_decode(text[end:].lstrip(", \n"))
        graphs.append((traces, layout))
    return graphs


def plot(page):
    """The traces and the layout of the only graph of a page."""
    (graph,) = plots(page)
    return graph


def _decoded(value):
    if "bdata" not in value:
        return value
    values = np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"])
    shape = tuple(map(int, value.get("shape", str(values.size)).split(",")))
    return np.where(np.isnan(values), None, values).reshape(shape).tolist()


def domains(layout):
    """Left, right, bottom and top of each panel, as shares of the page's plot."""
    names = [key.removeprefix("xaxis") for key in layout if key.startswith("xaxis")]
    return [
        (*layout[f"xaxis{n}"]["domain"], *layout[f"yaxis{n}"]["domain"]) for n in names
    ]


def curves_of(chart):
    """The curves of all panels."""
    return [curve for panel in chart.panels for curve in panel.curves]
