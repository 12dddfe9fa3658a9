"""Reads a session CSV back, also while it is being written."""

import io
from pathlib import Path

import pandas as pd

from slm_lab.metrics.row import BASE_COLUMNS

_INTEGER_COLUMNS = ("frame", "total_frame", "epi", "opt_step")


def load_session_df(path: str | Path) -> pd.DataFrame:
    """The whole rows of a session CSV; counts are int64, all else float64, empty cells NaN.

    A last line without its end is still being written and left out. A file without even a header
    is a session without rows. Raises OSError when there is no file, ValueError when a cell is no
    number.
    """
    text = Path(path).read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if not whole:
        return _typed(pd.DataFrame(columns=list(BASE_COLUMNS), dtype="float64"))
    frame = pd.read_csv(io.BytesIO(whole), dtype="float64")
    return _typed(frame)


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    counts = [name for name in _INTEGER_COLUMNS if name in frame.columns]
    return frame.astype(dict.fromkeys(counts, "int64"))
