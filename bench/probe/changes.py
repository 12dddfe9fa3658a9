"""Keys that may make a training faster on this machine."""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from slm_lab.core.process import usable_cores
from slm_lab.spec.modes import MODES, mode_of
from slm_lab.spec.schema.spec import Spec

FACTORS = (2, 4)
"""Factors of the number of environments."""


@dataclass(frozen=True)
class Change:
    """Settings for `-s`, and what they do to the learning beside rounding."""

    sets: tuple[str, ...] = ()
    learns: Literal["alike", "differently"] = "alike"

    @property
    def text(self) -> str:
        """For a table."""
        return " ".join(self.sets)

    @property
    def options(self) -> str:
        """To paste."""
        return " ".join(f"-s {each}" for each in self.sets)


AS_IS = Change()


def candidates(spec: Spec) -> Iterator[Change]:
    """The changes to try, some of which the spec may not allow."""
    cores, env, meta = usable_cores(), spec.env, spec.meta
    if env.num_envs > 1 and env.vectorization_mode != "async":
        yield Change(("env.vectorization_mode=async",))
    if env.backend != "envpool" and importlib.util.find_spec("envpool") is not None:
        yield Change(("env.backend=envpool",))
    if (threads := cores // meta.num_sessions) > meta.threads:
        yield Change((f"meta.threads={threads}",))
    if half := [f"agent.{key}.precision=bf16" for key in spec.agent.nets]:
        yield Change(tuple(half))
    if cores > 1 and meta.max_session == 1 and meta.distributed is False:
        for word in MODES.names():
            sets = (f"meta.distributed={word}", f"meta.max_session={cores}")
            if mode_of(word).in_step:
                yield Change((*sets, "meta.scale=strong"))
            elif mode_of(word).has_learner:
                yield Change((sets[0], f"meta.max_session={cores - 1}"), "differently")
            else:
                yield Change(sets, "differently")
    for factor in FACTORS:
        yield Change((f"env.num_envs={factor * env.num_envs}",), "differently")
