"""The modes of parallel training: one `Mode` for each value of `meta.distributed`.

A mode is a plug-in like an algorithm, see docs/extending.md. Its module must not import
torch, because `spec check` imports it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from slm_lab.core.registry import Registry

if TYPE_CHECKING:
    from pydantic import BaseModel


@final
@dataclass(frozen=True)
class Mode:
    """The facts about a mode. Import paths are "package.module:attribute"."""

    word: str
    launch: str | None
    """The `Launcher` that trains the Sessions of one training; None: each in its own
    process."""
    cluster_launch: str | None = None
    """The `Launcher` on a Ray cluster; None: the mode cannot run on one."""
    Params: "type[BaseModel] | None" = None
    """The model of a plug-in's block `meta.<word>`, all keys with defaults; None: it
    has none."""
    member: str = "worker"
    """The name of one of its Sessions in messages."""
    shares_budget: bool = True
    """Whether the frames of all Sessions count towards one budget."""
    one_agent: bool = False
    """Whether all Sessions hold the same agent, so that the first one writes the rows
    of all."""
    has_ranks: bool = False
    """Whether the Sessions are ranks: `meta.scale` divides the spec's totals among
    them, and they restart together, from a common checkpoint."""
    in_step: bool = False
    """Whether a gradient step has the samples of all ranks, so that learning rates
    grow."""
    lock_free: bool = False
    """Whether the Sessions share weights and optimizer state without a lock. They need
    a Global optimizer, and a step of one changes the weights of all."""
    in_shared_memory: bool = False
    """Whether the Sessions' networks are in shared CPU memory, not copies of shared
    weights."""
    algorithms: Mapping[str, str] = field(default_factory=dict)
    """The usual names of algorithms in this mode, and the lab's names: {"A3C":
    "ActorCritic"}."""
    has_learner: bool = False
    """Whether `meta.max_session` actors feed one learner, which is the first Session.
    Such a mode takes the settings of `meta.actor_learner`."""

    in_virtual_time: bool = False
    """Whether its Sessions can run one at a time by `meta.simulate`."""

    @property
    def exchanges_steps(self) -> bool:
        """Whether its Sessions exchange numbers in every gradient step."""
        return self.has_ranks or self.lock_free


def _fault(part: object) -> str | None:
    if not isinstance(part, Mode):
        return "is no Mode (slm_lab.spec.modes)"
    fields = {} if part.Params is None else getattr(part.Params, "model_fields", None)
    if fields is None:
        return f"has the Params {part.Params!r}, which is no pydantic model"
    for key, info in fields.items():
        if info.is_required():
            return f"has a key without a default: meta.{part.word}.{key}"
    return None


MODES = Registry("mode", "slm_lab.modes", check=_fault)

INDEPENDENT = Mode(
    "false",
    launch=None,
    cluster_launch="slm_lab.parallel.ray.launch:train_seeds",
    member="Session",
    shares_budget=False,
    in_virtual_time=True,
)
"""`false`: every Session is an independent training."""

SHARED = Mode(
    "shared",
    launch="slm_lab.parallel.hogwild.launch:train_workers",
    lock_free=True,
    in_shared_memory=True,
    in_virtual_time=True,
)
SYNCED = Mode(
    "synced",
    launch="slm_lab.parallel.hogwild.launch:train_workers",
    lock_free=True,
    algorithms={"A3C": "ActorCritic"},
    in_virtual_time=True,
)
ALL_REDUCE = Mode(
    "all_reduce",
    launch="slm_lab.parallel.all_reduce.launch:train_ranks",
    cluster_launch="slm_lab.parallel.ray.launch:train_ranks",
    member="rank",
    one_agent=True,
    has_ranks=True,
    in_step=True,
    algorithms={"DSAC": "SoftActorCritic", "DPPO": "PPO"},
    in_virtual_time=True,
)
ACTOR_LEARNER = Mode(
    "actor_learner",
    launch="slm_lab.parallel.actor_learner.launch:train_from_actors",
    cluster_launch="slm_lab.parallel.actor_learner.launch:train_from_actors",
    member="actor",
    shares_budget=False,
    one_agent=True,
    has_learner=True,
    algorithms={"IMPALA": "ActorCritic", "APPO": "PPO"},
    in_virtual_time=True,
)

for _mode in (SHARED, SYNCED, ALL_REDUCE, ACTOR_LEARNER):
    MODES.register(_mode.word, None, f"{__name__}:{_mode.word.upper()}")


def mode_of(word: str | bool) -> Mode:
    """The mode of a word. Raises LabError for an unknown word, or an invalid
    plug-in."""
    if word is False:
        return INDEPENDENT
    return MODES.load(str(word))


def words_of(holds: Callable[[Mode], object]) -> list[str]:
    """The words of the installed modes of which `holds` is true."""
    entries = ((word, MODES.get(word)) for word in MODES.names())
    usable = [
        word for word, entry in entries if entry is not None and entry.fault is None
    ]
    return [word for word in usable if holds(mode_of(word))]
