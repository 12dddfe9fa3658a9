"""Measures the Random agent's mean returns that are shipped with the lab, which takes
some minutes.

python -m bench.random_returns slm_lab/studies/shipped_returns.json
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slm_lab.core.errors import MissingExtraError
from slm_lab.env.lookup import EXTRAS
from slm_lab.records.origin import installed
from slm_lab.session.play_episodes import MAX_ENVS
from slm_lab.spec.load import check_file
from slm_lab.spec.read import shipped_files
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.studies.baseline import (
    LEARNER_ONLY,
    environment_key,
    measure_random_return,
)

OF_TEMPLATES = (
    *(
        "Ant-v5",
        "HalfCheetah-v5",
        "Hopper-v5",
        "Humanoid-v5",
        "HumanoidStandup-v5",
        "Pusher-v5",
    ),
    *("InvertedDoublePendulum-v5", "InvertedPendulum-v5", "Reacher-v5", "Swimmer-v5"),
    "Walker2d-v5",
)
"""Environments measured for the shipped specs that leave the environment open.

An Atari game takes half a minute, so only the games named in shipped specs are
measured.
"""


def measure() -> dict[str, Any]:
    """{environment: {return, episodes, packages}} of all environments installed
    here."""
    found: dict[str, Any] = {}
    for spec in environments():
        try:
            copies = spec.model_copy(update={"num_envs": MAX_ENVS})
            measured = measure_random_return(copies)
        except MissingExtraError as error:
            print(f"{spec.name}: {error}", file=sys.stderr)
            continue
        packages = {package: installed(package) for package in _packages(spec.name)}
        key = environment_key(spec, LEARNER_ONLY)
        found[key] = {
            "return": measured.mean,
            "episodes": measured.episodes,
            "episode_length": measured.episode_length,
            "packages": packages,
        }
        print(f"{key}: {measured.mean:.6g}", file=sys.stderr)
    return dict(sorted(found.items()))


def environments() -> Iterator[EnvSpec]:
    """The environments named in shipped specs, and `OF_TEMPLATES`, each once."""
    checked = [one.env for path in shipped_files() for one in check_file(path)]
    named = [env for env in checked if env is not None]
    more = [EnvSpec(name=name, max_frame=1) for name in OF_TEMPLATES]
    yield from {
        environment_key(env, LEARNER_ONLY): env for env in [*named, *more]
    }.values()


def _packages(name: str) -> tuple[str, ...]:
    """The packages whose code an environment of Gymnasium or ale-py runs."""
    own = [extra.module for extra in EXTRAS if extra.owns(name)]
    distributions = {"ale_py": "ale-py", "mujoco": "mujoco", "Box2D": "box2d"}
    return ("gymnasium", *(distributions.get(module, module) for module in own))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(
        json.dumps(measure(), indent=1) + "\n", encoding="utf-8"
    )
