"""Frames that a spec gives as shares of its budget `env.max_frame`, and schedules that
end with it.

`resolved` replaces the shares before a spec is validated, so that its models hold
numbers alone. The dev profile is a short budget."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from slm_lab.spec.limits import nodes
from slm_lab.spec.schema.bounds import FRAMES
from slm_lab.spec.schema.fields import share_of
from slm_lab.spec.schema.schedule import DECAYS, is_schedule
from slm_lab.spec.schema.spec import Spec

LINEAR_RATES = ("LinearToZero", "LinearToMin")
"""Learning-rate schedules on the frame clock; torch's schedules have arguments of their
own."""

SHARED_KEYS = frozenset(
    {
        "start_step",
        "end_step",
        "frame",
        "training_start_step",
        "reset_frequency",
        "grace_period",
        "max_t",
        "perturbation_interval",
        "burn_in_period",
    }
)
"""Keys of `agent` and `meta` that may be a share, of fields with the types of
`schema.share`."""


class Decay(NamedTuple):
    """A schedule whose value changes until the frame `end`. `path` is its dotted
    path."""

    path: str
    end_key: str
    end: int
    start: int = 0

    @property
    def end_path(self) -> str:
        """The dotted path of the frame of its end."""
        return f"{self.path}.{self.end_key}"

    @property
    def frames(self) -> dict[str, int]:
        """Start and end, by their dotted paths."""
        start = (
            {f"{self.path}.start_step": self.start}
            if self.end_key == "end_step"
            else {}
        )
        return {**start, self.end_path: self.end}


def resolved(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The raw spec with frames in place of shares. A schedule without an end gets the
    end of the budget. Without a valid budget, numbers that pass every check stand in:
    the budget itself is reported."""
    budget = budget_of(raw)
    blocks = {
        key: _resolved(raw[key], budget) for key in ("agent", "meta") if key in raw
    }
    if isinstance(raw.get("env"), Mapping):
        blocks["env"] = _with_resolved_arguments(raw["env"], budget)
    return {**raw, **blocks}


def budget_of(raw: Mapping[str, Any]) -> int | None:
    """The frames of a raw spec's budget; None without a valid number."""
    env = raw.get("env")
    frames = None
    if isinstance(env, Mapping):
        frames = env.get("max_frame")
    if isinstance(frames, int | float) and 1 <= frames <= FRAMES.number:
        return int(frames)
    return None


def decays(data: Mapping[str, Any]) -> Iterator[Decay]:
    """The schedules of a valid spec, as JSON data, whose value changes over the
    frames."""
    blocks = [*nodes(data["agent"], "agent"), *nodes(data["env"], "env")]
    for path, block in blocks:
        if not isinstance(block, Mapping):
            continue
        args = _arguments(block)
        if args.get("name") in LINEAR_RATES and args.get("min_factor") != 1:
            yield Decay(path, "frame", int(args["frame"]))
        elif _is_decay(block) and block["start_val"] != block["end_val"]:
            start = block.get("start_step", 0)
            yield Decay(path, "end_step", block["end_step"], start)


def stretched(
    data: Mapping[str, Any], old_budget: int, new_budget: int
) -> dict[str, int]:
    """Start and end of schedules, by their dotted paths, at the same shares of the new
    budget. Schedules that end beyond both budgets are left out. `data` is the valid
    spec, as JSON data."""
    ratio = Fraction(new_budget, old_budget)
    return {
        path: _rounded(frame * ratio)
        for decay in decays(data)
        if decay.end <= old_budget or decay.end < new_budget
        for path, frame in decay.frames.items()
    }


def _resolved(tree: Any, budget: int | None) -> Any:
    if isinstance(tree, list):
        return [_resolved(item, budget) for item in tree]
    if not isinstance(tree, Mapping):
        return tree
    whole = budget
    if whole is None:
        whole = FRAMES.number
    filled = {**tree, **dict.fromkeys(_open_ends(tree), whole)}
    return {key: _frames(key, value, budget) for key, value in filled.items()}


def _with_resolved_arguments(
    env: Mapping[str, Any], budget: int | None
) -> dict[str, Any]:
    """The block `env` with frames in the schedules of its arguments."""
    block = {
        key: _resolved(value, budget) if is_schedule(value) else value
        for key, value in env.items()
    }
    if isinstance(env.get("kwargs"), Mapping):
        block["kwargs"] = _with_resolved_arguments(env["kwargs"], budget)
    return block


def _frames(key: str, value: Any, budget: int | None) -> Any:
    if not isinstance(value, str):
        return _resolved(value, budget)
    share = None
    if key in SHARED_KEYS:
        share = share_of(value)
    if share is None:
        return value
    if budget is None:
        if key == "start_step":
            return 0
        return FRAMES.number
    return max(1, _rounded(share * budget))


def _open_ends(block: Mapping[str, Any]) -> Iterator[str]:
    """The key of the end of a schedule that has none."""
    if block.get("name") in LINEAR_RATES and _arguments(block).get("frame") is None:
        yield "frame"
    if _is_decay(block) and block.get("end_step") is None:
        yield "end_step"


def _arguments(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """A block of a torch class, whose arguments may stand in a block `args` too."""
    args = block.get("args")
    if isinstance(args, Mapping):
        return {**args, **block}
    return block


def _is_decay(block: Mapping[str, Any]) -> bool:
    return is_schedule(block) and block.get("name") in DECAYS


def _rounded(frames: Fraction) -> int:
    return int(frames + Fraction(1, 2))


DEV_TRAININGS = 4
"""The training events of a dev run. There are more if they come in quick succession."""
DEV_ROWS = 8
DEV_SESSIONS = 2
DEV_EVAL_ENVS = 2


def dev_profile(spec: Spec, num_agents: int = 1) -> Spec:
    """The spec with a budget of a few training events, at most two Sessions and one
    trial. It has at most two evaluation environments, and logs often enough for a
    graph. The agent itself is unchanged. Each copy of the environment has
    `num_agents`, whose steps are frames."""
    num_envs = spec.env.num_envs * num_agents
    sessions = min(spec.meta.max_session, DEV_SESSIONS)
    # A learner trains on the frames of all its actors, so their number does not
    # multiply these.
    workers = 1
    if spec.meta.mode.shares_budget:
        workers = sessions
    frames = spec.agent.algorithm.frames_of_events(DEV_TRAININGS, num_envs, spec.meta)
    max_frame = min(spec.env.max_frame, frames * workers)
    per_row = max(1, max_frame // workers // DEV_ROWS)
    env = spec.env.model_copy(update={"max_frame": max(max_frame, num_envs)})
    meta = spec.meta.model_copy(
        update={
            "max_session": sessions,
            "max_trial": 1,
            "max_run": 1,
            "log_frequency": per_row
            if spec.logs_by_default
            else min(spec.log_frequency, per_row),
            "eval_frequency": min(spec.meta.eval_frequency, per_row),
            "rigorous_eval": min(spec.meta.rigorous_eval, DEV_EVAL_ENVS),
        }
    )
    return spec.model_copy(update={"env": env, "meta": meta})
