"""The columns of a session CSV, with units and meanings, and its rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

from slm_lab.core.errors import LabError
from slm_lab.core.registry import nearest_name
from slm_lab.core.types import Column

Cell: TypeAlias = int | float | None
"""The value of a row in one column; None is an empty cell: not measured in this interval."""


_BASE = (
    Column("frame", "frames", "environment steps of this Session, summed over its environments"),
    Column(
        "total_frame",
        "frames",
        "frames that count towards the budget: those of all Sessions of a distributed training, or "
        "of one independent Session",
    ),
    Column("wall_t", "s", "training time; a resumed run continues it"),
    Column("cpu_t", "s", "CPU time of the Session's process; without that of environment workers"),
    Column("epi", "episodes", "episodes finished"),
    Column("opt_step", "steps", "optimizer steps taken"),
    Column("fps", "frames/s", "frames since the last row over seconds since the last row"),
    Column("total_reward", "reward", "R: mean over environments of the last episode's raw return"),
    Column("total_reward_ma", "reward", "mean of the last 100 non-empty total_reward"),
    Column("mean_return", "reward", "mean raw return of the episodes since the last row"),
    Column(
        "recent_return",
        "reward",
        "basis of decisions during a training: mean raw return of the episodes of the last 5 % of "
        "the budget, at least the last 20 and at most the last 100; empty before 20 have ended, "
        "unless the budget is spent",
    ),
    Column(
        "final_return",
        "reward",
        "the result if the run ends here: mean raw return of the episodes of the last 5 % of the "
        "budget, or of the last 20 if these are fewer",
    ),
    Column("final_return_episodes", "episodes", "number of episodes in final_return"),
    Column("loss", "1", "the minimised loss, the sum of all terms"),
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
    Column("clip_fraction", "1", "share of samples with a ratio outside [1 − ε, 1 + ε]"),
    Column("approx_kl", "nat", "estimate of KL(behaviour policy ‖ current policy)"),
    Column("explained_variance", "1", "1 − Var(returns − value) / Var(returns); 1 is perfect"),
    Column("q_value", "reward", "mean of Q(s, a) over the batches learned from, discounted"),
    Column("update_to_data", "1", "gradient steps per frame since training began"),
    Column("sil_policy_loss", "1", "self-imitation: the policy's term, before its coefficient"),
    Column("sil_value_loss", "1", "self-imitation: the critic's term, before its coefficient"),
    Column("sil_share", "1", "share of past steps whose return was better than the critic expects"),
    Column("alpha", "1", "entropy temperature α"),
    Column("staleness_p50", "updates", "median of others' updates while a gradient is computed"),
    Column("staleness_p95", "updates", "95th percentile of the same"),
    Column("updates_per_s", "steps/s", "optimizer steps over seconds since the last row"),
    Column("sync_share", "1", "share of the time spent on exchange with other ranks, and waiting"),
    Column(
        "eps",
        "slices/s",
        "environments whose steps one training iteration learns from, over the median of the "
        "seconds between the ends of two iterations",
    ),
    Column("policy_lag", "updates", "training events from acting to the arrival of steps, mean"),
    Column("policy_lag_max", "updates", "the same, maximum since the last row"),
    Column("actor_wait_share", "1", "share of their time in which actors waited for a free slot"),
    Column(
        "learner_wait_share",
        "1",
        "share of the time since the last row in which the learner waited for steps; with serial "
        "actors, in which they acted",
    ),
)

COLUMNS: dict[str, Column] = {column.name: column for column in (*_BASE, *_EXTRA)}
"""Every column this package documents, by name. `docs/metrics.md` shows this table."""

LEARNED = ("loss", "lr", "entropy", "explore_var", "grad_norm")
"""The base columns that learners report."""

BASE_COLUMNS: tuple[str, ...] = tuple(column.name for column in _BASE)
"""The columns of every session CSV, in this order; extra columns follow."""

EVAL_COLUMNS: tuple[str, ...] = (
    "frame", "total_frame", "wall_t", "epi", "opt_step", "total_reward", "total_reward_ma",
    "final_return", "final_return_episodes", "return_std", "return_min", "return_max",
    "episode_length",
)  # fmt: skip
"""The columns of a CSV of evaluations: the training's clocks, and the results."""

INFO_PREFIX = "info_"
"""The beginning of the names of columns for `env.info_keys`."""

TIMING_COLUMNS: tuple[str, ...] = (
    "wall_t", "cpu_t", "fps", "sync_share", "eps", "actor_wait_share", "learner_wait_share",
)  # fmt: skip
"""The only columns that differ between two runs of one spec and seed. Other columns differ only
with Hogwild! workers and actors, which run in no fixed order."""


@final
@dataclass(frozen=True)
class Row:
    """One line of a session CSV: `cells[i]` belongs to `columns[i]`."""

    columns: tuple[str, ...]
    cells: tuple[Cell, ...]

    def __getitem__(self, column: str) -> Cell:
        return self.cells[self.columns.index(column)]

    def to_csv(self) -> str:
        """The line without its line end. Reading it restores floats bitwise."""
        return ",".join(_cell_text(cell) for cell in self.cells)


def info_columns(keys: Iterable[str]) -> tuple[Column, ...]:
    """The columns for `env.info_keys`."""
    meaning = "mean over the episodes since the last row that ended with this number in their info"
    return tuple(Column(f"{INFO_PREFIX}{key}", "1", meaning) for key in keys)


def resolve_columns(extra: Iterable[str | Column]) -> tuple[str, ...]:
    """The base columns, then `extra`: names from `COLUMNS`, or other Columns. Raises LabError for
    an unknown name, for a name with a comma, quote or line end, and for a duplicate."""
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
    # float() first, because the repr of a numpy float is not a plain number.
    return repr(float(cell)) if isinstance(cell, float) else str(int(cell))
