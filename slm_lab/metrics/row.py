"""The columns of a session CSV, what each means and its unit; and one row of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

from slm_lab.core.column import Column
from slm_lab.core.errors import LabError
from slm_lab.core.registry import nearest_name

Cell: TypeAlias = int | float | None
"""What a row holds in one column. None is an empty cell: not measured in this interval."""


_BASE = (
    Column("frame", "frames", "environment steps of this Session, summed over its environments"),
    Column(
        "total_frame",
        "frames",
        "frames on the clock that the budget counts: of all Sessions of a distributed training "
        "together; an independent Session's own",
    ),
    Column("wall_t", "s", "training time; goes on where it stopped when a run is resumed"),
    Column(
        "cpu_t",
        "s",
        "CPU time of the Session's process in that time, all threads; environments that have "
        "processes of their own are not in it",
    ),
    Column("epi", "episodes", "episodes finished"),
    Column("opt_step", "steps", "optimizer steps taken"),
    Column("fps", "frames/s", "frames since the last row over seconds since the last row"),
    Column(
        "total_reward",
        "reward",
        "R: mean over environments of the last finished episode's raw return "
        "(only environments that have finished one)",
    ),
    Column(
        "total_reward_ma",
        "reward",
        "SLM Lab's moving average: mean of the last min(n, 100) non-empty total_reward; with fewer "
        "rows it reaches back to the first",
    ),
    Column("mean_return", "reward", "mean raw return of the episodes since the last row"),
    Column(
        "recent_return",
        "reward",
        "what decides while a training runs: mean raw return of the episodes of the last 5 % of "
        "the budget, at least the last 20 and at most the last 100; empty before 20 have ended, "
        "unless the budget is spent",
    ),
    Column(
        "final_return",
        "reward",
        "the result if the run ends here: mean raw return of the episodes of the last 5 % of the "
        "budget, or of the last 20 where these are fewer",
    ),
    Column("final_return_episodes", "episodes", "how many episodes final_return rests on"),
    Column("loss", "1", "the loss that was minimised, all terms summed"),
    Column("lr", "1", "learning rate of the (actor's) optimizer"),
    Column("entropy", "nat", "entropy of the policy, mean over the batch"),
    Column("explore_var", "1", "the exploration variable: ε of ε-greedy, τ of Boltzmann"),
    Column("grad_norm", "1", "norm of the whole gradient before clipping"),
)

_EXTRA = (
    Column("episode_length", "steps", "mean over environments of the last episode's length"),
    Column("return_std", "reward", "population standard deviation of the episodes' raw returns"),
    Column("return_min", "reward", "the lowest of the episodes' raw returns"),
    Column("return_max", "reward", "the highest of the episodes' raw returns"),
    Column("policy_loss", "1", "the policy's term of the loss"),
    Column("value_loss", "1", "the critic's term of the loss, before its coefficient"),
    Column("entropy_coef", "1", "coefficient of the entropy bonus"),
    Column("clip_eps", "1", "PPO's clipping range ε"),
    Column("clip_fraction", "1", "share of samples whose ratio left [1 − ε, 1 + ε]"),
    Column("approx_kl", "nat", "estimate of KL(behaviour policy ‖ current policy)"),
    Column("explained_variance", "1", "1 − Var(returns − value) / Var(returns); 1 is perfect"),
    Column("q_value", "reward", "mean of Q(s, a) over the batches learned from, discounted"),
    Column("update_to_data", "1", "gradient steps per frame since training began"),
    Column("sil_policy_loss", "1", "self-imitation: the policy's term, before its coefficient"),
    Column("sil_value_loss", "1", "self-imitation: the critic's term, before its coefficient"),
    Column("sil_share", "1", "share of past steps whose return was better than the critic expects"),
    Column("alpha", "1", "entropy temperature α"),
    Column("staleness_p50", "updates", "median of updates others made while a gradient was made"),
    Column("staleness_p95", "updates", "95 % of gradients were at most so stale"),
    Column("updates_per_s", "steps/s", "optimizer steps over seconds since the last row"),
    Column(
        "sync_share",
        "1",
        "share of the time since the last row that went into exchanging with other ranks and "
        "waiting for them",
    ),
    Column(
        "eps",
        "slices/s",
        "environments whose steps one training iteration learns from, over the median of the "
        "seconds between the ends of two iterations",
    ),
    Column(
        "policy_lag",
        "updates",
        "training events between the policy that acted and the learner's when its steps came, mean",
    ),
    Column("policy_lag_max", "updates", "the same, the most since the last row"),
    Column("actor_wait_share", "1", "share of their time that actors waited for a free slot"),
    Column(
        "learner_wait_share",
        "1",
        "share of the time since the last row that the learner waited "
        "for steps to learn from; where actors play in turn with it, in which they did",
    ),
)

COLUMNS: dict[str, Column] = {column.name: column for column in (*_BASE, *_EXTRA)}
"""Every column this package documents, by name. `docs/metrics.md` shows this table."""

BASE_COLUMNS: tuple[str, ...] = tuple(column.name for column in _BASE)
"""The columns of every session CSV, in this order; extra columns follow."""

EXTRA_COLUMNS: tuple[str, ...] = tuple(column.name for column in _EXTRA)
"""Documented columns that an algorithm, a mode or a Session may add."""

EVAL_COLUMNS: tuple[str, ...] = (
    "frame",
    "total_frame",
    "wall_t",
    "epi",
    "opt_step",
    "total_reward",
    "total_reward_ma",
    "final_return",
    "final_return_episodes",
    "return_std",
    "return_min",
    "return_max",
    "episode_length",
)
"""The columns of a CSV of evaluations: the training's clocks, and what was evaluated there."""

TIMING_COLUMNS: tuple[str, ...] = (
    "wall_t", "cpu_t", "fps", "sync_share", "eps", "actor_wait_share", "learner_wait_share",
)  # fmt: skip
"""The only columns that differ between two runs of one spec and seed, but for those of Hogwild!
workers and of actors, whose order nothing fixes."""


@final
@dataclass(frozen=True)
class Row:
    """One line of a session CSV: `cells[i]` belongs to `columns[i]`."""

    columns: tuple[str, ...]
    cells: tuple[Cell, ...]

    def __getitem__(self, column: str) -> Cell:
        return self.cells[self.columns.index(column)]

    def to_dict(self) -> dict[str, Cell]:
        """Column name -> cell, in the order of the columns."""
        return dict(zip(self.columns, self.cells, strict=True))

    def to_csv(self) -> str:
        """The line without its end. Floats read back to the same bits."""
        return ",".join(_cell_text(cell) for cell in self.cells)


def resolve_columns(extra: Iterable[str | Column]) -> tuple[str, ...]:
    """The base columns followed by `extra`, each of which is documented: by name here, or itself.

    Raises LabError for a name that nothing documents, a name with a comma, quote or line end, and
    a name that comes twice.
    """
    names = list(BASE_COLUMNS)
    for column in extra:
        name = column.name if isinstance(column, Column) else column
        if isinstance(column, str) and name not in COLUMNS:
            raise LabError(
                f'"{name}" is no documented column{suggest(name, list(COLUMNS))}; '
                "give a Column with its unit and meaning"
            )
        if not name or any(mark in name for mark in ',"\r\n'):
            raise LabError(f"{name!r} cannot be the name of a column: it would break the CSV")
        if name in names:
            raise LabError(f'column "{name}" is there already')
        names.append(name)
    return tuple(names)


def suggest(name: str, known: Sequence[str]) -> str:
    """ "; did you mean x?" for the nearest known name, or an empty string."""
    nearest = nearest_name(name, list(known))
    return f"; did you mean {nearest}?" if nearest else ""


def _cell_text(cell: Cell) -> str:
    if cell is None:
        return ""
    # float() first: numpy's own scalars are floats whose repr is not a number's.
    return repr(float(cell)) if isinstance(cell, float) else str(int(cell))
