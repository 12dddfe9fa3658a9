"""The report of a benchmark: tables and graphs, made from its data alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, final

import numpy as np

from slm_lab.charts.axis import RETURNS, TOTAL_FRAMES, Axis
from slm_lab.charts.final_returns import Improvement, as_latex, improvement
from slm_lab.charts.overlay import Seeds, overlay_chart
from slm_lab.charts.plot import joined
from slm_lab.charts.statistics import Statistic, interquartile_mean
from slm_lab.charts.write import write_chart
from slm_lab.core.files import write_atomically
from slm_lab.core.text import (
    TextTable,
    duration_text,
    short_count,
    significant,
    with_spread,
)
from slm_lab.core.types import FloatArray
from slm_lab.records.training_record import TrainingRecord
from slm_lab.storage.run_dir import safe_name
from slm_lab.studies.benchmark.results import RowResult, interval, mean, row_results

NONE = "–"
LEFT = frozenset({"row", "environment", "published", "verdict", "processor"})
"""The columns of words."""
SCORE = Axis("", "", "score: Random 0, best mean 1")
"""The y axis of what is joined over environments."""


@final
class BenchmarkReport:
    """Tables and graphs of records. The same records give the same files."""

    def __init__(self, records: Sequence[TrainingRecord]) -> None:
        self.results = row_results(records)
        self.suites = list(dict.fromkeys(row.first.suite for row in self.results))

    def write(self, out: Path) -> list[Path]:
        """Writes all files into `out`; returns their paths. Raises OSError."""
        tables = {
            "results.csv": _csv(_facts(row) for row in self.results),
            "published.csv": _csv(self._comparisons()),
            "trainings.csv": _csv(_training_facts(row) for row in self._records()),
        }
        for suite in self.suites:
            table = self.table(suite)
            tables[f"{safe_name(suite)}.md"] = markdown(table)
            tables[f"{safe_name(suite)}.tex"] = as_latex(table)
            speeds = self.speeds(suite)
            if speeds.rows:
                tables[f"{safe_name(suite)}_speeds.md"] = markdown(speeds)
        out.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, text in tables.items():
            path = out / name
            write_atomically(path, text.encode())
            paths.append(path)
        for suite in self.suites:
            paths += self._draw(suite, out)
        return paths

    def table(self, suite: str) -> TextTable:
        """A line for each row of a suite, beside the published score that is nearest to
        it."""
        header = (
            "row",
            "environment",
            "frames",
            "seeds",
            "final returns",
            "mean, 95 %",
            "IQM, 95 %",
            "greedy",
            "Random",
            "published",
            "verdict",
        )
        spare = ("IQM, 95 %", "Random", "greedy", "environment", "published", "frames")
        rows = tuple(_cells(row) for row in self._of(suite))
        return TextTable(header, rows, spare=spare)

    def speeds(self, suite: str) -> TextTable:
        """A line for each row beside whose trainings nothing else ran."""
        header = ("row", "frames", "trainings", "frames/s", "time", "processor")
        rows = []
        for row in self._of(suite):
            if not row.speeds:
                continue
            speed = float(np.median(row.speeds))
            rows.append(
                (
                    row.first.row,
                    short_count(row.frames),
                    f"{len(row.speeds)}",
                    significant(speed),
                    duration_text(row.frames / speed),
                    str(row.first.machine.get("processor", NONE)),
                )
            )
        return TextTable(header, tuple(rows), spare=("processor",))

    def broken_bounds(self) -> list[RowResult]:
        """The rows that promise a bound and do not keep it."""
        return [row for row in self.results if row.is_kept is False]

    def improvements(self, suite: str) -> list[Improvement]:
        """For each two methods with three seeds in the same environments, which is
        better."""
        pairs = combinations(self._methods(suite), 2)
        rankings = (improvement(pair, np.random.default_rng(0)) for pair in pairs)
        return [ranking for ranking in rankings if ranking is not None]

    def _of(self, suite: str) -> list[RowResult]:
        return [row for row in self.results if row.first.suite == suite]

    def _records(self) -> Iterator[TrainingRecord]:
        for row in self.results:
            yield from row.records

    def _panels(self, rows: Sequence[RowResult]) -> dict[str, list[Seeds]]:
        """The curves of each environment."""
        panels: dict[str, list[Seeds]] = {}
        for row in rows:
            seeds = row.seeds()
            if seeds.lines:
                panels.setdefault(row.first.env, []).append(seeds)
        return panels

    def _methods(self, suite: str) -> list[Seeds]:
        """Each method over all environments that every method was trained in, with
        scores; empty unless there are two environments and two methods."""
        rows = [row for row in self._of(suite) if row.final_returns.size]
        methods: dict[str, dict[str, RowResult]] = {}
        for row in rows:
            methods.setdefault(row.first.method, {})[row.first.env] = row
        if len(methods) < 2:
            return []
        envs = set.intersection(*(set(by_env) for by_env in methods.values()))
        if len(envs) < 2:
            return []
        panels: dict[str, list[Seeds]] = {}
        for env in sorted(envs):
            here = [by_env[env] for by_env in methods.values()]
            zero = next(
                (r.random_return for r in here if r.random_return is not None), 0.0
            )
            best = max(float(row.final_returns.mean()) for row in here)
            if best > zero:
                panels[env] = [row.seeds(zero, best - zero) for row in here]
        return joined(panels)

    def _draw(self, suite: str, out: Path) -> list[Path]:
        """The learning curves of a suite, a panel for each environment; and, if methods
        share environments, their scores over all of these."""
        paths: list[Path] = []
        panels = self._panels(self._of(suite))
        stem = safe_name(suite)
        if panels:
            paths += self._chart(panels, RETURNS[0], out, f"{stem}_curves", suite)
        methods = self._methods(suite)
        if methods:
            heading = {"all environments": methods}
            title = f"{suite}: all environments"
            paths += self._chart(heading, SCORE, out, f"{stem}_profile", title)
        return paths

    def _chart(
        self,
        panels: Mapping[str, Sequence[Seeds]],
        y: Axis,
        out: Path,
        stem: str,
        title: str,
    ) -> list[Path]:
        chart = overlay_chart(
            panels,
            TOTAL_FRAMES,
            y,
            "iqm",
            np.random.default_rng(0),
            title=title,
            lines=(),
            log=False,
            width=None,
            with_profile=y is SCORE,
        )
        return write_chart(chart, out, stem, out)

    def _comparisons(self) -> Iterator[dict[str, Any]]:
        """Every published score of each row."""
        for row in self.results:
            for score, judgement in row.published:
                yield {
                    "suite": row.first.suite,
                    "row": row.first.row,
                    **score._asdict(),
                    "verdict": judgement.verdict.value,
                    "why": judgement.why,
                }


def _cells(row: RowResult) -> tuple[str, ...]:
    finals = sorted(row.final_returns.tolist())
    published = NONE
    words = [row.unfinished]
    if row.is_below:
        words.insert(0, f"below its bound of {significant(row.first.bound)}")
    if row.published:
        score, judgement = row.published[0]
        published = (
            f"{significant(score.mean)}, {score.source}, {short_count(score.frames)}"
        )
        words.append(str(judgement))
    verdict = "; ".join(filter(None, words)) or NONE
    return (
        row.first.row,
        row.first.env,
        short_count(row.frames),
        f"{len(row.finished)} of {len(row.records)}",
        ", ".join(map(significant, finals)) or NONE,
        _with_interval(row.final_returns, mean),
        _with_interval(row.final_returns, interquartile_mean),
        _spread(row.evaluations),
        significant(row.random_return),
        published,
        verdict,
    )


def _with_interval(values: FloatArray, statistic: Statistic) -> str:
    """A statistic over seeds (S,) with its interval."""
    if not values.size:
        return NONE
    text = significant(float(statistic(values)))
    if values.size < 2:
        return text
    low, high = interval(values, statistic)
    return f"{text} [{significant(low)}, {significant(high)}]"


def _spread(values: FloatArray) -> str:
    if not values.size:
        return NONE
    std = None
    if values.size > 1:
        std = float(values.std())
    return with_spread(float(values.mean()), std)


def _facts(row: RowResult) -> dict[str, Any]:
    """The numbers of a row with all their digits."""
    finals = row.final_returns
    facts: dict[str, Any] = {
        "suite": row.first.suite,
        "row": row.first.row,
        "method": row.first.method,
        "algorithm": row.first.algorithm,
        "env": row.first.env,
        "max_frame": row.frames,
        "seeds_finished": len(row.finished),
        "seeds_planned": len(row.records),
        "unfinished": row.unfinished,
        "random_return": row.random_return,
        "bound": row.first.bound,
        "keeps_bound": row.is_kept,
        "seeds_needed": row.seeds_needed,
    }
    for name, statistic in (("mean", mean), ("iqm", interquartile_mean)):
        low, high = (None, None)
        if finals.size > 1:
            low, high = interval(finals, statistic)
        facts[name] = float(statistic(finals)) if finals.size else None
        facts |= {f"{name}_low": low, f"{name}_high": high}
    if row.evaluations.size:
        facts["greedy_mean"] = float(row.evaluations.mean())
    if row.speeds:
        facts["frames_per_second"] = float(np.median(row.speeds))
    return facts


def _training_facts(record: TrainingRecord) -> dict[str, Any]:
    """The numbers of a training."""
    facts = record.model_dump(
        exclude={"curve", "evaluation", "packages", "machine", "sets"}
    )
    facts["sets"] = " ".join(record.sets)
    facts["greedy_mean"] = None
    if record.evaluation is not None:
        facts["greedy_mean"] = record.evaluation.mean
    return facts


def _csv(rows: Iterable[Mapping[str, Any]]) -> str:
    import pandas as pd

    return pd.DataFrame(list(rows)).to_csv(index=False)


def markdown(table: TextTable) -> str:
    """The table as GitHub shows it."""
    sides = [":--" if name in LEFT else "--:" for name in table.header]
    lines = [table.header, tuple(sides), *table.rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
