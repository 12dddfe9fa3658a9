"""What an environment is run with, written out: a score depends on it."""

import json
from typing import Any

from slm_lab.env.lookup import find_env
from slm_lab.env.simulators.atari import atari_keys, is_atari
from slm_lab.env.time_limit import episode_limit
from slm_lab.env.vector.autoreset import choose_mode
from slm_lab.env.vector.envpool import is_pooled
from slm_lab.spec.schema.env import EnvSpec


def env_record(spec: EnvSpec) -> dict[str, Any]:
    """The id, how copies are stepped, the step limit, and every argument: those of the spec and
    those that the id is registered with, sticky actions say. As JSON; raises as `make_env`."""
    entry = find_env(spec.name)
    arguments = {**entry.kwargs, **spec.kwargs}
    if is_atari(entry):
        keys = atari_keys(spec, entry)
        arguments = {"game": entry.kwargs["game"], **keys.model_dump(exclude_none=True)}
    pooled = is_pooled(spec)
    mode = "native" if pooled else choose_mode(spec.vectorization_mode, spec.kwargs, entry)
    return {
        "id": entry.id,
        "backend": "envpool" if pooled else "gymnasium",
        "vectorization_mode": mode,
        "max_t": episode_limit(spec),
        "arguments": json.loads(json.dumps(arguments, default=repr)),
    }
