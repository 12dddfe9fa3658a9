"""What callbacks are called with."""

from typing import Any


class Events:
    """Keeps what its methods, which are a training's callbacks, are called with."""

    def __init__(self, seen: list[tuple[Any, ...]] | None = None) -> None:
        self.seen = seen or []

    def on_row(self, run, row):
        self.seen.append(("row", row["session"], row["frame"], row["mean_return"]))

    def on_checkpoint(self, run, session, frame):
        self.seen.append(("checkpoint", session, frame))

    def on_end(self, run):
        self.seen.append(("end", run.is_running))

    def rows(self):
        return [event[1:3] for event in self.seen if event[0] == "row"]
