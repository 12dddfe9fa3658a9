"""What an environment is run with: its step limit and all arguments. Scores depend on them."""

import json
from typing import Any

from slm_lab.env.lookup import find_env, step_limit
from slm_lab.env.simulators.atari import atari_keys, is_atari
from slm_lab.env.simulators.envpool import is_pooled
from slm_lab.env.vector.autoreset import choose_mode
from slm_lab.spec.schema.env import EnvSpec


def episode_limit(spec: EnvSpec) -> int | None:
    """Steps after which an episode is truncated; None: never. Raises as `make_env`."""
    entry = find_env(spec.name)
    if is_atari(entry):
        return atari_keys(spec, entry).max_steps
    return step_limit(spec, entry)


def env_record(spec: EnvSpec) -> dict[str, Any]:
    """The id, vectorisation, step limit and all arguments, registered ones included, as JSON.
    Raises as `make_env`."""
    entry = find_env(spec.name)
    arguments = {**entry.kwargs, **spec.arguments}
    if is_atari(entry):
        keys = atari_keys(spec, entry)
        arguments = {"game": entry.kwargs["game"], **keys.model_dump(exclude_none=True)}
    pooled = is_pooled(spec)
    mode = "native" if pooled else choose_mode(spec, entry)
    return {
        "id": entry.id,
        "backend": "envpool" if pooled else "gymnasium",
        "vectorization_mode": mode,
        "max_t": episode_limit(spec),
        "arguments": json.loads(json.dumps(arguments, default=repr)),
    }
