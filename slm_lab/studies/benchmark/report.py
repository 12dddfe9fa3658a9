"""The report of a benchmark: tables and graphs, made from its data alone."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, final

import numpy as np

from slm_lab.charts.axis import RETURNS, TOTAL_FRAMES, Axis, wall_clock
from slm_lab.charts.chart import Chart
from slm_lab.charts.final_returns import Improvement, as_latex, improvement
from slm_lab.charts.overlay import Seeds, overlay_chart
from slm_lab.charts.plot import joined
from slm_lab.charts.statistics import Statistic, interquartile_mean
from slm_lab.charts.write import write_chart
from slm_lab.core.files import write_atomically
from slm_lab.core.text import (
    TextTable,
    short_count,
    significant,
    with_spread,
)
from slm_lab.core.types import FloatArray
from slm_lab.records.training_record import TrainingRecord
from slm_lab.storage.run_dir import safe_name
from slm_lab.studies.benchmark.results import RowResult, interval, mean, row_results

NONE = "–"
LEFT = frozenset({"row", "variant", "environment", "published", "verdict", "processor"})
"""The columns of words."""
SCORE = Axis("", "", "score: Random 0, best mean 1")
"""The y axis of what is joined over environments."""
SHORT = 4
"""A curve that ends so many times earlier than another is short beside it."""


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
            "trainings.csv": _csv(map(_training_facts, self._records(self.results))),
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
            for name, chart in self._charts(suite):
                paths += write_chart(chart, out, f"{safe_name(suite)}_{name}", out)
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
        """A line for each row beside whose trainings nothing else ran, or in virtual
        time. A speed-up is over the row with the fewest workers that does the same."""
        header = (
            "row",
            "workers",
            "frames",
            "trainings",
            "frames/s",
            "speed-up",
            "seconds",
            "processor",
        )
        known = [row for row in self._of(suite) if row.speed is not None]
        rows = []
        for row in known:
            assert row.speed is not None
            processor = str(row.first.machine.get("processor", NONE))
            if row.first.is_virtual:
                processor = "virtual time"
            rows.append(
                (
                    row.first.row,
                    f"{row.first.workers}",
                    short_count(row.frames),
                    f"{len(row.speeds)}",
                    significant(row.speed),
                    _speed_up(row, known),
                    significant(row.frames / row.speed),
                    processor,
                )
            )
        return TextTable(header, tuple(rows), spare=("processor", "trainings"))

    def curves(self, suite: str) -> Chart | None:
        """The learning curves of a suite, a panel for each environment; None if no
        training has ended."""
        panels = self._panels(self._of(suite))
        if not panels:
            return None
        return _chart(panels, suite)

    def times(self, suite: str) -> Chart | None:
        """The learning curves over virtual time; None unless all rows are in it."""
        rows = self._of(suite)
        if not all(row.first.is_virtual for row in rows):
            return None
        seconds = [record.wall_seconds or 0.0 for record in self._records(rows)]
        clock = wall_clock(max(seconds))
        panels = self._panels(rows, second=clock.unit_size)
        if not panels:
            return None
        label = f"virtual {clock.label}"
        return _chart(panels, suite, x=clock._replace(label=label))

    def improvements(self, suite: str) -> list[Improvement]:
        """Which of two methods is better, for each two with three seeds in the same
        environments."""
        pairs = combinations(self._methods(suite), 2)
        rankings = (improvement(pair, np.random.default_rng(0)) for pair in pairs)
        return [ranking for ranking in rankings if ranking is not None]

    def _of(self, suite: str) -> list[RowResult]:
        return [row for row in self.results if row.first.suite == suite]

    def _records(self, rows: Iterable[RowResult]) -> Iterator[TrainingRecord]:
        for row in rows:
            yield from row.records

    def _panels(
        self, rows: Sequence[RowResult], second: float = 0.0
    ) -> dict[str, list[Seeds]]:
        """The curves of each environment, over time in units of `second` if given. Rows
        of one method in one environment have their own names."""
        panels: dict[str, list[Seeds]] = {}
        counts = Counter((row.first.method, row.first.env) for row in rows)
        for row in rows:
            first = row.first
            seeds = row.seeds(second=second)
            if counts[first.method, first.env] > 1:
                seeds = seeds._replace(label=first.row)
            if seeds.lines:
                panels.setdefault(first.env, []).append(seeds)
        return panels

    def _methods(self, suite: str) -> list[Seeds]:
        """Each method over all environments that every method was trained in, in
        scores. Empty unless there are two environments and two methods."""
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

    def _charts(self, suite: str) -> Iterator[tuple[str, Chart]]:
        """The graphs of a suite, with the ends of their names."""
        curves = self.curves(suite)
        if curves is not None:
            yield "curves", curves
        times = self.times(suite)
        if times is not None:
            yield "times", times
        methods = self._methods(suite)
        if methods:
            name = "all environments"
            yield "profile", _chart({name: methods}, f"{suite}: {name}", y=SCORE)

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


def _chart(
    panels: Mapping[str, Sequence[Seeds]],
    title: str,
    x: Axis = TOTAL_FRAMES,
    y: Axis = RETURNS[0],
) -> Chart:
    """A panel for each environment, and for what joins them a performance profile."""
    return overlay_chart(
        panels=panels,
        x=x,
        y=y,
        aggregate="iqm",
        title=title,
        log_x=any(map(_differ_in_length, panels.values())),
    )


def _differ_in_length(groups: Sequence[Seeds]) -> bool:
    """Whether a curve would be too short to see beside the longest."""
    ends = [max(line.x[-1] for line in group.lines) for group in groups]
    return bool(max(ends) > SHORT * min(ends))


def _speed_up(row: RowResult, rows: Sequence[RowResult]) -> str:
    """How many times as fast as the row of fewest workers."""
    same = [other for other in rows if other.work == row.work]
    fewest = min(same, key=lambda other: other.first.workers)
    if len(same) == 1 or row.speed is None or fewest.speed is None:
        return NONE
    return f"{row.speed / fewest.speed:.2f}"


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
        f"{len(row.finished)} of {row.planned}",
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
        "seeds_planned": row.planned,
        "unfinished": row.unfinished,
        "random_return": row.random_return,
        "bound": row.first.bound,
        "keeps_bound": row.is_kept,
        "seeds_needed": row.seeds_needed,
    }
    for name, statistic in (("mean", mean), ("iqm", interquartile_mean)):
        low = None
        high = None
        if finals.size > 1:
            low, high = interval(finals, statistic)
        facts[name] = float(statistic(finals)) if finals.size else None
        facts |= {f"{name}_low": low, f"{name}_high": high}
    if row.evaluations.size:
        facts["greedy_mean"] = float(row.evaluations.mean())
    if row.speed is not None:
        facts["frames_per_second"] = row.speed
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
