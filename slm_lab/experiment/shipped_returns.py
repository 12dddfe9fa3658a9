"""The Random agent's mean returns shipped with the lab.

They save each training from sharing its cores with a hundred random episodes. Measured by
`python -m slm_lab.experiment.shipped_returns FILE`, which takes some minutes.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slm_lab.storage.provenance import installed

if TYPE_CHECKING:
    from slm_lab.spec.schema.env import EnvSpec

DATA = Path(__file__).with_name("shipped_returns.json")
LEARNER_ONLY = frozenset({"life_loss_info"})
"""Arguments that do not change the returns of whole games."""

OF_TEMPLATES = (
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "Pusher-v5"),
    *("InvertedDoublePendulum-v5", "InvertedPendulum-v5", "Reacher-v5", "Swimmer-v5"),
    "Walker2d-v5",
)
"""Environments measured for the shipped specs that leave the environment open.

An Atari game takes half a minute, so only the games named in shipped specs are measured.
"""


def environment_key(spec: "EnvSpec", leave_out: frozenset[str] = frozenset()) -> str:
    """The environment, and the arguments and wrappers that change its raw returns; `leave_out`
    names arguments that do not."""
    kept = {key: value for key, value in spec.kwargs.items() if key not in leave_out}
    arguments = json.dumps(kept, sort_keys=True, default=str)
    wrappers = f" {json.dumps(spec.wrapped_by, sort_keys=True)}" if spec.wrappers else ""
    return f"{spec.name} max_t={spec.max_t} {arguments}{wrappers}"


def shipped_random_return(spec: "EnvSpec") -> float | None:
    """The shipped mean return; None without one, or with another major version of the simulator."""
    entry = _shipped().get(environment_key(spec, LEARNER_ONLY))
    if entry is None or spec.backend != "gymnasium":
        return None
    packages = entry["packages"]
    if any(_major(package) != measured.partition(".")[0] for package, measured in packages.items()):
        return None
    return float(entry["return"])


@cache
def _shipped() -> Mapping[str, Any]:
    entries: Mapping[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return entries


def _major(package: str) -> str:
    return (installed(package) or "").partition(".")[0]


def measure() -> dict[str, Any]:
    """{environment: {return, episodes, packages}} of all environments installed here."""
    from slm_lab.core.errors import MissingExtraError
    from slm_lab.experiment.baseline import EPISODES, measure_random_return

    found: dict[str, Any] = {}
    for spec in environments():
        try:
            value = measure_random_return(spec)
        except MissingExtraError as error:
            print(f"{spec.name}: {error}", file=sys.stderr)
            continue
        packages = {package: installed(package) for package in _packages(spec.name)}
        key = environment_key(spec, LEARNER_ONLY)
        found[key] = {"return": value, "episodes": EPISODES, "packages": packages}
        print(f"{key}: {value:.6g}", file=sys.stderr)
    return dict(sorted(found.items()))


def environments() -> Iterator["EnvSpec"]:
    """The environments named in shipped specs, and `OF_TEMPLATES`, each once."""
    from slm_lab.spec.load import check_file
    from slm_lab.spec.read import shipped_files
    from slm_lab.spec.schema.env import EnvSpec

    checked = [one.env for path in shipped_files() for one in check_file(path)]
    named = [env for env in checked if env is not None]
    more = [EnvSpec(name=name, max_frame=1) for name in OF_TEMPLATES]
    yield from {environment_key(env, LEARNER_ONLY): env for env in [*named, *more]}.values()


def _packages(name: str) -> tuple[str, ...]:
    """The packages whose code an environment of Gymnasium or ale-py runs."""
    from slm_lab.env.lookup import EXTRAS

    own = [extra.module for extra in EXTRAS if extra.owns(name)]
    distributions = {"ale_py": "ale-py", "mujoco": "mujoco", "Box2D": "box2d"}
    return ("gymnasium", *(distributions.get(module, module) for module in own))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
