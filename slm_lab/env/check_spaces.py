"""Checks the agent against the environment's spaces without a run, if that takes milliseconds.

A run repeats this check with its environment, whose construction may take seconds."""

from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from slm_lab.core.errors import LabError, MissingExtraError, Problem, SpecError
from slm_lab.env.lookup import find_env, is_of
from slm_lab.env.make import Actions, describe_spaces
from slm_lab.env.simulators.atari import is_atari
from slm_lab.env.simulators.envpool import is_pooled
from slm_lab.spec.checks.algorithm import action_space_problems
from slm_lab.spec.checks.observations import observation_problems
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.env import EnvSpec

MADE_AT_ONCE = ("gymnasium.envs.classic_control.", "gymnasium.envs.box2d.")
"""Families whose environments are constructed in milliseconds."""

MUJOCO = "gymnasium.envs.mujoco."


def cheap_space_problems(agent: AgentSpec, spec: EnvSpec) -> list[Problem]:
    """The problems of `agent` with the spaces of the environment; `spec` must have passed
    `check_env`. Constructs environments of classic control and Box2D. Of MuJoCo and Atari it checks
    only the kind of actions, of others or those not installed nothing."""
    try:
        entry = find_env(spec.name)
    except MissingExtraError:
        return []
    if is_of(entry, *MADE_AT_ONCE) and not is_pooled(spec):
        return _problems_with_spaces(agent, spec)
    actions = _known_actions(entry, spec)
    return [] if actions is None else action_space_problems(agent.algorithm, *actions)


def _problems_with_spaces(agent: AgentSpec, spec: EnvSpec) -> list[Problem]:
    try:
        spaces = describe_spaces(spec)
    except SpecError as error:
        return list(error.problems)
    except MissingExtraError:
        return []
    except LabError as error:
        return [Problem("env", str(error))]
    problems = action_space_problems(agent.algorithm, *spaces.actions)
    is_choice = spaces.actions.kind == "discrete"
    return problems + observation_problems(agent, spaces.obs_shape, is_choice)


def _known_actions(entry: GymnasiumSpec, spec: EnvSpec) -> Actions | None:
    if is_of(entry, MUJOCO) and not spec.wrappers:
        return Actions("box", has_low=True, has_high=True)
    if is_atari(entry) and not spec.wrappers and not spec.arguments.get("continuous", False):
        return Actions("discrete", has_low=True, has_high=True)
    return None
