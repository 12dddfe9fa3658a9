"""A run folder in Python."""

import os
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from slm_lab.api.lab_process import Handle, LabProcess
from slm_lab.charts.page import graph
from slm_lab.charts.trial import chart_of_returns
from slm_lab.core.errors import UsageError
from slm_lab.core.plugins import listed_texts
from slm_lab.metrics.reader import Rows
from slm_lab.records.annotations import annotate, read_annotations
from slm_lab.records.archive import naming
from slm_lab.records.lookup import open_trial
from slm_lab.records.run_record import RunRecord
from slm_lab.records.table import joined_rows
from slm_lab.trackers.callbacks import Callbacks

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

    from slm_lab.api.agent import Agent


@final
class Run(Handle):
    """A run, or one trial of a search. Every attribute reads the folder as it is then.

    >>> run = slm_lab.load_run("latest")
    >>> run.rows.groupby("session").frame.max().to_dict()
    {0: 1000.0, 1: 1000.0}
    >>> sorted(run.metrics)[:2]
    ['consistency', 'final_return']"""

    def __init__(
        self,
        record: RunRecord,
        process: LabProcess | None = None,
        callbacks: Callbacks | None = None,
    ) -> None:
        """The run of `record`, which `process` trains."""
        super().__init__(record.folder, process, callbacks)
        self.name = record.name
        self.spec = dict(record.spec)
        """The spec as the folder records it, with every default."""
        self._record = record
        self.source = record.where
        self.is_own = process is not None
        """Whether this program has started it; `agent` then imports the modules that it
        names."""

    @property
    def rows(self) -> "pd.DataFrame":
        """The training rows of all Sessions, each with its `session`; docs/metrics.md
        has the columns. Raises UsageError if they are damaged."""
        return joined_rows(self._read())

    @property
    def eval_rows(self) -> "pd.DataFrame":
        """The rows of evaluations during training (`meta.rigorous_eval`), as in
        `rows`."""
        return joined_rows(self._read(evaluations=True))

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the Trial, see docs/metrics.md; empty until it has ended
        once."""
        with naming(self._record.place, self.folder):
            return self._record.checked_metrics()

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the run, sorted."""
        return read_annotations(self._record.run_dir).tags

    @property
    def note(self) -> str:
        """The note about the run; empty without one."""
        return read_annotations(self._record.run_dir).note

    def annotate(
        self,
        *,
        add: str | Sequence[str] = (),
        remove: str | Sequence[str] = (),
        note: str | None = None,
    ) -> None:
        """Adds and removes tags, and replaces the note, as `slm-lab runs --tag`; also
        while it trains. Raises UsageError for a shared run, and for what is no tag."""
        archive = self._record.archive
        if archive is not None:
            raise UsageError(f"{archive} is a shared run, which is not changed")
        annotate(
            self._record.run_dir,
            add=listed_texts(add),
            remove=listed_texts(remove),
            note=note,
        )

    def plot(self) -> "Figure":
        """The trial graph: mean return against frames, with a band over Sessions. A
        notebook shows it; `.write_image` and `.write_html` save it."""
        rows = self._read()
        title = f"{self.name} on {self._record.env}"
        return graph(chart_of_returns(rows, title, self._record.meta.runs_of(rows)))

    def agent(self, **options: Any) -> "Agent":
        """A trained agent of this run; `options` are the options of `slm_lab.load`."""
        from slm_lab.api.agent import load  # imports torch

        defaults = {"data": self._record.place.parent, "trust": self.is_own}
        return load(self.source, **{**defaults, **options})

    def _read(self, evaluations: bool = False) -> dict[int, Rows]:
        record = RunRecord(self._record.run_dir, self._record.trial)
        read = record.rows
        if evaluations:
            read = record.evaluation_rows
        with naming(self._record.place, self.folder):
            return {session: read(session) for session in record.sessions}

    @override
    def __repr__(self) -> str:
        return f"<Run {self.name} in {self.source}>"


def load_run(run: str | os.PathLike[str], *, data: str | Path = "data") -> Run:
    """A run, to read what it has written. Imports none of its modules.

    >>> slm_lab.load_run("latest").spec["env"]["name"]
    'CartPole-v1'

    Args:
        run: As for `slm_lab.load`.
        data: The folder of run folders.

    Raises:
        UsageError: There is no such run."""
    with ExitStack() as kept:
        opened = Run(kept.enter_context(open_trial(os.fspath(run), Path(data))))
        weakref.finalize(opened, kept.pop_all().close)  # a shared run stays unpacked
        return opened
