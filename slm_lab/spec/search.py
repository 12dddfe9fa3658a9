"""The `search` block: the keys to vary, Ray Tune's samplers for them, and what fits the
searcher and the scheduler."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import isclose, isfinite, prod
from typing import Any, NamedTuple, TypeAlias

from slm_lab.core.errors import Problem, SpecError
from slm_lab.spec.blocks import Blocks
from slm_lab.spec.override import with_value
from slm_lab.spec.schema.block import REFUSING
from slm_lab.spec.schema.bounds import CHOICES, TRIALS
from slm_lab.spec.schema.messages import unknown_name
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.rules import Facts, broken_rules
from slm_lab.spec.schema.spec import Spec

Validate: TypeAlias = Callable[[Mapping[str, Any]], tuple[Spec | None, list[Problem]]]

NewProblems: TypeAlias = Callable[[Mapping[str, Any]], list[Problem]]
"""The problems that a spec gets by values at their paths. Raises SpecError where a path
leads nowhere."""


class TuneSampler(NamedTuple):
    """A sampler of Ray Tune: the names of its arguments, and the number of required
    ones."""

    arguments: tuple[str, ...]
    required: int
    in_order: bool = True
    whole: bool = False

    def name_arguments(self, args: Sequence[Any]) -> dict[str, Any]:
        """The values of its arguments, of which the last may be missing, by their
        names."""
        return dict(zip(self.arguments, args, strict=False))


SAMPLERS = {
    "uniform": TuneSampler(("lower", "upper"), 2),
    "quniform": TuneSampler(("lower", "upper", "q"), 3),
    "loguniform": TuneSampler(("lower", "upper", "base"), 2),
    "qloguniform": TuneSampler(("lower", "upper", "q", "base"), 3),
    "randint": TuneSampler(("lower", "upper"), 2, whole=True),
    "qrandint": TuneSampler(("lower", "upper", "q"), 2, whole=True),
    "lograndint": TuneSampler(("lower", "upper", "base"), 2, whole=True),
    "qlograndint": TuneSampler(("lower", "upper", "q", "base"), 3, whole=True),
    "normal": TuneSampler(("mean", "sd"), 2, in_order=False),
    "randn": TuneSampler(("mean", "sd"), 2, in_order=False),
    "qrandn": TuneSampler(("mean", "sd", "q"), 3, in_order=False),
}
LISTS = ("choice", "grid_search")
ALL_SAMPLERS = (*SAMPLERS, *LISTS)

OF_SEARCH = (
    "max_trial",
    "search_alg",
    "search_scheduler",
    "search_resources",
    "confirm",
)
"""Keys of meta that concern only the search, not a single trial."""
NOT_OF_A_TRIAL = {
    **{f"meta.{key}": "it configures the whole search" for key in OF_SEARCH},
    "meta.random_seed": "the seeds of all trials derive from that of the search; "
    "meta.max_session repeats each trial with more seeds",
    "meta.cluster": "all trials run in the same place",
    "search": "a trial has no search block",
    "name": "it is the label of the search, and changes no trial",
}
"""Keys that do not affect a trial, with the reasons; the same holds for keys below
them."""


NOT_OF_SEARCHER = {
    "optuna": (
        "grid_search",
        "normal",
        "randn",
        "qrandn",
        "qloguniform",
        "qlograndint",
    ),
    "hyperopt": ("grid_search",),
}
"""Samplers that a searcher does not support."""

MUTABLE = re.compile(
    r"agent\.algorithm\.\w*(gamma|lam|coef|eps|alpha|temperature|loss|epoch|iter|size)"
    r"\w*(\.(start_val|end_val))?$"
    r"|agent\.(net|critic_net)\.(\w*clip_grad_val|polyak_coef|update_frequency)$"
    r"|agent\.(net|critic_net)\.\w*optim_spec\.(?!(name|optimizer)$)\w+$"
    r"|agent\.memory\.(batch_size|alpha|epsilon)$"
    r"|env\.(reward_scale|clip_reward)$"
)
"""Keys that may change while an agent trains. None of them changes the shape of its
nets, its memory or its environment."""


class Dimension(NamedTuple):
    """A key that a search varies: its dotted path in the spec, the sampler and its
    arguments. `key` is its dotted path in the `search` block."""

    key: str
    path: str
    sampler: str
    args: Any


def dimensions(search: Mapping[str, Any], above: str = "") -> Iterator[Dimension]:
    """The keys of a search block, nested or dotted, in order. A key without `__` whose
    value is no block, or an empty block, has no sampler ("")."""
    for key, value in search.items():
        here = key
        if above:
            here = f"{above}.{key}"
        path, separator, sampler = here.rpartition("__")
        if separator and "." not in sampler:
            yield Dimension(here, path, sampler, value)
        elif isinstance(value, Mapping) and value:
            yield from dimensions(value, here)
        else:
            yield Dimension(here, here, "", value)


def num_trials(searched: Collection[Dimension], max_trial: int) -> int:
    """The trials of a search. Grid points are visited once, if nothing is drawn
    besides; otherwise whole grids repeat up to at least `max_trial`."""
    lists = [
        dimension.args for dimension in searched if dimension.sampler == "grid_search"
    ]
    points = prod(len(values) for values in lists if isinstance(values, list)) or 1
    is_grid = all(dimension.sampler == "grid_search" for dimension in searched)
    if is_grid:
        return points
    return -(-max_trial // points) * points


def search_problems(spec: Mapping[str, Any], validate: Validate) -> list[Problem]:
    """The problems of the `search` block of a spec. Checks samplers and their
    arguments, keys that do not affect a trial, and keys that contradict each other.
    Checks paths and values by setting each in the spec and validating it."""
    search = spec.get("search")
    if not isinstance(search, Mapping):
        return []
    trial = {**spec, "search": None}  # not copied with every value
    before = {str(problem) for problem in validate(trial)[1]}

    def new_problems(values: Mapping[str, Any]) -> list[Problem]:
        changed: Mapping[str, Any] = trial
        for path, value in values.items():
            changed = with_value(changed, path, value)
        return [p for p in validate(changed)[1] if str(p) not in before]

    problems: list[Problem] = []
    seen: dict[str, str] = {}
    space = list(dimensions(search))
    for dimension in space:
        message = (
            _sampler_message(dimension)
            or _meaningless(dimension.path)
            or _conflict(dimension, seen)
        )
        if message:
            problems.append(Problem(f"search.{dimension.key}", message, dimension.args))
            continue
        for value in extremes(dimension):
            wrong = _tried(dimension, value, new_problems)
            if wrong and not _is_mended(dimension, value, space, new_problems):
                problems.extend(wrong)
                break
    return problems


def _is_mended(
    dimension: Dimension,
    value: Any,
    space: Sequence[Dimension],
    new_problems: NewProblems,
) -> bool:
    """Whether a value that does not fit the spec fits every value of another searched
    key in its block. An example is a later start of a schedule whose end is searched
    too."""
    block = dimension.path.rpartition(".")[0]
    for other in space:
        is_beside = other.path.rpartition(".")[0] == block and other is not dimension
        if not is_beside or _sampler_message(other):
            continue
        settings = [{other.path: end, dimension.path: value} for end in extremes(other)]
        try:
            if not any(map(new_problems, settings)):
                return True
        except SpecError:
            continue
    return False


def _meaningless(path: str) -> str:
    """Why a value at `path` does not affect a trial; "" if it does."""
    for key, why in NOT_OF_A_TRIAL.items():
        if path == key or path.startswith(f"{key}."):
            return f"{key} cannot be searched over: {why}"
    return ""


def _conflict(dimension: Dimension, seen: dict[str, str]) -> str:
    """The conflict with an earlier key that varies the same path, or a path above or
    below; or "". `seen` maps the paths so far to their keys; this adds the dimension to
    it."""
    path = dimension.path
    key = dimension.key
    message = ""
    for other, other_key in seen.items():
        if other == path and other_key == key:
            message = "is given twice, once nested; keep one"
        elif other == path:
            message = f"varies the same as search.{other_key}; keep one"
        elif path.startswith(f"{other}."):
            message = (
                f"varies a part of what search.{other_key} sets as a whole; keep one"
            )
        elif other.startswith(f"{path}."):
            message = (
                f"sets as a whole what search.{other_key} varies a part of; keep one"
            )
        if message:
            break
    seen.setdefault(path, key)
    return message


def _sampler_message(dimension: Dimension) -> str:
    """The problem of the sampler or its arguments; "" if none."""
    name = dimension.sampler
    args = dimension.args
    if not name and isinstance(args, Mapping):
        return "holds no key to vary"
    if not name:
        return (
            "must be a block, or end in __ and the name of a sampler, as lr__loguniform"
        )
    if name not in ALL_SAMPLERS:
        return unknown_name("sampler", name, ALL_SAMPLERS)
    if name in LISTS:
        empty = not isinstance(args, list) or not args
        if empty:
            return "must be a list of values"
        return CHOICES.refusal(args) or ""
    return _argument_message(name, SAMPLERS[name], args)


def _argument_message(name: str, sampler: TuneSampler, args: Any) -> str:
    """The problem of the arguments of a sampler of numbers; "" if none."""
    if not isinstance(args, list) or not sampler.required <= len(args) <= len(
        sampler.arguments
    ):
        return f"must be a list [{', '.join(sampler.arguments)}]"
    if any(isinstance(arg, bool) or not isinstance(arg, int | float) for arg in args):
        return "must be a list of numbers"
    first, second = args[:2]
    named = sampler.name_arguments(args)
    q = named.get("q")
    if q is not None and (q <= 0 or not isfinite((abs(first) + abs(second)) / q)):
        if q <= 0:
            return "q must be > 0"
        return f"q ({q}) is too small for such numbers"
    uneven = q is not None and not all(
        isclose(end / q, round(end / q)) for end in args[:2]
    )
    in_parts = sampler.whole and any(n != int(n) for n in (first, second, q or 0))
    rules = (
        (in_parts, "must be whole numbers"),
        (sampler.in_order and first >= second, "lower must be < upper"),
        (sampler.in_order and "log" in name and first <= 0, "lower must be > 0"),
        (not sampler.in_order and second <= 0, "sd must be > 0"),
        (sampler.in_order and uneven, f"lower and upper must be multiples of q ({q})"),
        ("base" in named and named["base"] <= 1, "base must be > 1"),
    )
    return next((message for broken, message in rules if broken), "")


def extremes(dimension: Dimension) -> list[Any]:
    """Test values that the search may set: every choice, or the ends of a range. A
    range of fractions adds a value in between. The ends of a normal distribution are
    mean ± sd."""
    if dimension.sampler in LISTS:
        return list(dimension.args)
    sampler = SAMPLERS[dimension.sampler]
    first, second = dimension.args[:2]
    q = sampler.name_arguments(dimension.args).get("q")
    if sampler.whole:
        # The range excludes its upper end, unless it draws multiples of q.
        return [int(first), int(second) if q is not None and q > 1 else int(second) - 1]
    if sampler.in_order:
        # Tune excludes the upper end, up to rounding; Optuna includes it.
        return [first, second, _between(first, second, q)]
    mean, below, above = (
        value if q is None else round(value / q) * q
        for value in (first, first - second, first + second)
    )
    return [mean, below, above, _between(mean, above, q)]


def _between(lower: float, upper: float, q: float | None) -> float:
    """A possible draw between the ends. If draws may be fractions, it or `lower` is
    one."""
    # if q is a fraction, one of two successive multiples is a fraction too
    if q is not None:
        return min((round(lower / q) + 1) * q, upper)
    value = lower / 2 + upper / 2
    while lower < value < upper and value.is_integer():
        upper = value
        value = lower / 2 + value / 2
    if value < upper:
        return value
    return lower  # beyond 2^53 no number is a fraction


def _tried(
    dimension: Dimension, value: Any, new_problems: NewProblems
) -> list[Problem]:
    """The new problems of the spec with `value` at the path."""
    try:
        found = new_problems({dimension.path: value})
    except SpecError as error:
        return [Problem(f"search.{dimension.key}", p.message) for p in error.problems]
    problems = []
    for problem in found:
        place = ""
        if problem.path != dimension.path:
            place = f"{problem.path}: "
        problems.append(
            Problem(f"search.{dimension.key}", f"{place}{problem.message}", value)
        )
    return problems


def search_cross_check(search: Mapping[str, Any], blocks: Blocks) -> Iterator[Problem]:
    """The problems of a search whose single keys are valid."""
    meta = blocks.meta
    if meta is None:
        return
    space = [dimension for dimension in dimensions(search) if dimension.sampler]
    yield from _check_samplers(space, meta)
    yield from _check_grid(space)
    scheduler = meta.search_scheduler
    if scheduler is None:
        return
    facts = Facts("meta.search_scheduler", scheduler, blocks)
    yield from _check_single_run(meta)
    yield from broken_rules(REFUSING, facts)
    if scheduler.COUNTS_ALL_TRIALS and meta.search_alg != "random":
        message = (
            f"must be random with search_scheduler {scheduler.name}, which needs all "
            "trials before the first ends"
        )
        yield Problem("meta.search_alg", message, meta.search_alg)
    if scheduler.name == "pbt":
        yield from _check_population(space, meta)


def _check_samplers(space: list[Dimension], meta: MetaSpec) -> Iterator[Problem]:
    unknown = NOT_OF_SEARCHER.get(meta.search_alg, ())
    for dimension in space:
        sampler = dimension.sampler
        if sampler in unknown:
            instead = "uniform or loguniform"
            if sampler == "grid_search":
                instead = "choice"
            message = (
                f"{meta.search_alg} has no {sampler}; use {instead}, or search_alg "
                "random"
            )
            yield Problem(f"search.{dimension.key}", message)


def _check_grid(space: list[Dimension]) -> Iterator[Problem]:
    grid = [dimension for dimension in space if dimension.sampler == "grid_search"]
    lists = [dimension.args for dimension in grid if isinstance(dimension.args, list)]
    points = prod(map(len, lists))
    message = TRIALS.refusal(points)
    if message:
        keys = ", ".join(dimension.key for dimension in grid)
        yield Problem(
            "search", f"the grid of {keys} has {points:,} points, and {message}"
        )


def _check_single_run(meta: MetaSpec) -> Iterator[Problem]:
    if meta.max_run > 1:
        message = (
            "must be 1 beside search_scheduler, which compares trials while they run, "
            "but runs of one trial are sequential; meta.confirm repeats the best"
        )
        yield Problem("meta.max_run", message, meta.max_run)


def _check_population(space: list[Dimension], meta: MetaSpec) -> Iterator[Problem]:
    if meta.max_trial < 2:
        message = (
            "must be >= 2 with search_scheduler pbt: it is the size of the population"
        )
        yield Problem("meta.max_trial", message, meta.max_trial)
    for dimension in space:
        if not MUTABLE.match(dimension.path):
            message = (
                "cannot change while an agent trains, as search_scheduler pbt requires"
            )
            yield Problem(f"search.{dimension.key}", message)
