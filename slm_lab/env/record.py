"""What an environment is run with, written out: a score depends on it."""

import json
from typing import Any

from slm_lab.env.atari import atari_keys, is_atari
from slm_lab.env.autoreset import choose_mode
from slm_lab.env.lookup import find_env
from slm_lab.spec.schema.env import EnvSpec


def env_record(spec: EnvSpec) -> dict[str, Any]:
    """The id, how copies are stepped, the step limit, and every argument: those of the spec and
    those that the id is registered with, sticky actions say. As JSON; raises as `make_env`."""
    entry = find_env(spec.name)
    arguments = {**entry.kwargs, **spec.kwargs}
    limit = entry.max_episode_steps if spec.max_t is None else spec.max_t
    if is_atari(entry):
        keys = atari_keys(spec, entry)
        arguments = {"game": entry.kwargs["game"], **keys.model_dump(exclude_none=True)}
    return {
        "id": entry.id,
        "vectorization_mode": choose_mode(spec.vectorization_mode, spec.kwargs, entry),
        "max_t": limit,
        "arguments": json.loads(json.dumps(arguments, default=repr)),
    }
