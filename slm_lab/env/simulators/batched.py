"""The environments that exist as one batched implementation by torch."""

from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from slm_lab.core.errors import Problem
from slm_lab.spec.schema.env import EnvSpec

DYNAMICS = "slm_lab.env.simulators.classic_control"
CLASSIC = {
    "cartpole:CartPoleEnv": "CartPole",
    "pendulum:PendulumEnv": "Pendulum",
    "acrobot:AcrobotEnv": "Acrobot",
    "mountain_car:MountainCarEnv": "MountainCar",
    "continuous_mountain_car:Continuous_MountainCarEnv": "MountainCarContinuous",
}
"""The class in `DYNAMICS` for each class in Gymnasium's folder `classic_control`."""

FOLDER = "gymnasium.envs.classic_control."


def is_batched(spec: EnvSpec) -> bool:
    """Whether torch steps the environments of `spec`; single ones are always
    Gymnasium's."""
    return spec.backend == "torch" and spec.vectorization_mode in (None, "native")


def batch_problems(spec: EnvSpec, entry: GymnasiumSpec) -> list[Problem]:
    """The problems of `spec` with torch, but for unknown arguments."""
    if dynamics_of(entry) is None:
        names = ", ".join(CLASSIC.values())
        message = f'torch has {names}, and no {entry.id}; use "gymnasium"'
        return [Problem("env.backend", message, spec.backend)]
    mode = spec.arguments.get("render_mode")
    if mode is not None:
        message = 'torch draws nothing; leave it out, or use env.backend "gymnasium"'
        return [Problem("env.render_mode", message, mode)]
    return []


def dynamics_of(entry: GymnasiumSpec) -> str | None:
    """The class with the dynamics of `entry`, as "module:Class"; None if there is
    none."""
    target = entry.entry_point
    if not isinstance(target, str) or entry.additional_wrappers:
        return None
    name = CLASSIC.get(target.removeprefix(FOLDER))
    return None if name is None else f"{DYNAMICS}:{name}"
