"""The environments that exist as one batched implementation by torch."""

from collections.abc import Callable

from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from slm_lab.core.errors import Problem
from slm_lab.core.registry import load_target
from slm_lab.env.failure import close_all
from slm_lab.env.interface import Env
from slm_lab.env.lookup import step_limit
from slm_lab.env.vector.raw import RawEnvs, env_seeds
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
    if _dynamics(entry) is None:
        names = ", ".join(CLASSIC.values())
        message = f'torch has {names}, and no {entry.id}; use "gymnasium"'
        return [Problem("env.backend", message, spec.backend)]
    mode = spec.arguments.get("render_mode")
    if mode is not None:
        message = 'torch draws nothing; leave it out, or use env.backend "gymnasium"'
        return [Problem("env.render_mode", message, mode)]
    return []


def make_batched(
    spec: EnvSpec, entry: GymnasiumSpec, make_one: Callable[[], Env], seed: int
) -> RawEnvs:
    """The environments of `spec`, which has no `batch_problems`, with the spaces of
    `make_one`."""
    from slm_lab.env.simulators.torch_envs import BatchedEnvs, TorchEnvs

    single = make_one()
    close_all([single.close], spec.name)
    kind = load_target(f"{DYNAMICS}:{_dynamics(entry)}")
    arguments = {**entry.kwargs, **spec.arguments}
    arguments.pop("render_mode", None)
    envs = BatchedEnvs(
        dynamics=kind(**arguments),
        num_envs=spec.num_envs,
        seed=env_seeds(seed, 1)[0],
        max_episode_steps=step_limit(spec, entry),
        device="cpu",
    )
    return TorchEnvs(envs, single.observation_space, single.action_space)


def _dynamics(entry: GymnasiumSpec) -> str | None:
    """The name of the class with the dynamics of `entry`; None if there is none."""
    target = entry.entry_point
    if not isinstance(target, str) or entry.additional_wrappers:
        return None
    return CLASSIC.get(target.removeprefix(FOLDER))
