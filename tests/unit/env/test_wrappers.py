"""`env.wrappers`: wrappers of any package, by their names in the spec."""

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_equal

from slm_lab.core.errors import LabError, SpecError
from slm_lab.env.adapter import PolicyAdapter
from slm_lab.env.check import check_env
from slm_lab.env.versions import env_record
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.studies.baseline import environment_key
from slm_lab.studies.requirements import check_spaces
from tests.support import parse, ppo
from tests.unit.env.wrapped import Rewarded, Scaled
from tests.unit.spec.problems import assert_problem

HERE = "tests.unit.env.wrapped"
SCALED = {"name": f"{HERE}:Scaled", "factor": 2.0}


def steps(env, actions):
    obs = [env.reset()]
    for action in actions:
        step = env.step(action)
        obs += [step.obs, step.next_obs, step.reward]
    return obs


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_wrappers_do_what_their_classes_do_in_the_order_of_the_list(
    build, random_actions, mode
):
    env = build(
        "Pendulum-v1",
        num_envs=2,
        vectorization_mode=mode,
        wrappers=[
            SCALED,
            {"name": f"{HERE}:Scaled", "factor": 1, "shift": 1},
            f"{HERE}:Rewarded",
        ],
    )
    plain = build("Pendulum-v1", num_envs=2)
    actions = random_actions(env, 250)
    for wrapped, own in zip(steps(env, actions), steps(plain, actions), strict=True):
        expected = own * 2 + 1 if own.ndim == 2 else np.full(2, 2.0)
        assert_allclose(wrapped, expected, rtol=1e-6)
    assert not env.exact_state


def test_a_native_version_gives_way_to_single_environments(build):
    spec = {"wrappers": [f"{HERE}:Rewarded"]}
    env = build("CartPole-v1", **spec)
    assert [type(each) for each in env.raw.envs] == [Rewarded] * 3
    record = env_record(EnvSpec(name="CartPole-v1", max_frame=1, **spec))
    assert record["vectorization_mode"] == "sync"


def test_the_lab_converts_what_the_wrappers_return(build):
    env = build(
        "Pendulum-v1",
        wrappers=[f"{HERE}:as_parts"],
        normalize_obs=True,
        frame_op="concat",
        frame_op_len=3,
    )
    assert env.observation_space.shape == (18,)
    with pytest.raises(SpecError, match="Text space"):
        build("Pendulum-v1", wrappers=[f"{HERE}:worded"])


def test_the_time_limit_is_inside_the_wrappers(build):
    env = build(
        "Pendulum-v1", max_t=7, wrappers=["gymnasium.wrappers:TimeAwareObservation"]
    )
    assert env.observation_space.shape == (4,)
    env.reset()
    for _ in range(7):
        step = env.step(np.zeros((3, 1), np.float32))
    assert step.truncated.all()


@pytest.mark.parametrize(
    ("wrapper", "problem"),
    [
        (
            "no_such_package:A",
            "0 = 'no_such_package:A': the package no_such_package is not in…",
        ),
        (f"{HERE}:Scald", f"0 = …: {HERE} has no Scald; did you mean Scaled?"),
        (
            f"{HERE}:NoWrapper",
            "0 = …: must be a subclass of gymnasium.Wrapper, or a function",
        ),
        (
            f"{HERE}:NUMBER",
            "0 = …: must be a subclass of gymnasium.Wrapper, or a function",
        ),
        ("time:sleep", "0 = 'time:sleep': must be a subclass of gymnasium.Wrapper"),
        (
            {**SCALED, "fctor": 3},
            "0.fctor = 3: …:Scaled does not accept it; did you mean factor?",
        ),
        (
            {**SCALED, "env": 3},
            "0.env = 3: …:Scaled does not accept it; it accepts factor, shift",
        ),
        ({**SCALED, "factor": "2"}, "0.factor = '2': must be a number"),
        (f"{HERE}:Scaled", f"0.factor: is missing: {HERE}:Scaled needs it"),
        (
            {"name": f"{HERE}:as_parts", "x": 1},
            "0.x = 1: …:as_parts does not accept it; it a…",
        ),
    ],
    ids=str,
)
def test_a_faulty_wrapper_is_refused_before_anything_is_made(
    assert_refused, wrapper, problem
):
    assert_refused("Pendulum-v1", f"env.wrappers.{problem}", wrappers=[wrapper])


def test_a_failing_wrapper_is_reported(build):
    with pytest.raises(
        LabError, match=r"wrapped:broken cannot wrap .*RuntimeError: not today"
    ):
        build("Pendulum-v1", wrappers=[f"{HERE}:broken"])
    with pytest.raises(LabError, match=r"cannot wrap .* returned None, no environment"):
        build("Pendulum-v1", wrappers=[f"{HERE}:nothing"])


def test_any_argument_passes_where_a_wrapper_takes_any(env_spec):
    wrappers = [{"name": f"{HERE}:Rewarded", "each": 5, "more": None}]
    assert check_env(env_spec("Pendulum-v1", wrappers=wrappers)) == []


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            {"wrappers": ["Scaled"]},
            'env.wrappers = …: each entry must be "package.module:Class"',
        ),
        ({"wrappers": [{"factor": 2}]}, "env.wrappers = …: each entry must be"),
        ({"wrappers": "a:B"}, "env.wrappers = 'a:B': must be a list"),
        (
            {"wrappers": ["a:B"], "vectorization_mode": "native"},
            "env.vectorization_mode = 'native': cannot be used with wrappers; use "
            '"sync"',
        ),
        (
            {"wrappers": ["a:B"], "backend": "envpool"},
            "env.backend = 'envpool': cannot be used with wrappers; use \"gymnasium\"",
        ),
        (
            {"wrappers": ["a:B"], "backend": "envpool", "vectorization_mode": "sync"},
            None,
        ),
    ],
    ids=str,
)
def test_the_form_of_the_key_is_checked_with_the_spec(keys, problem):
    raw = ppo()
    raw["env"] |= keys
    assert_problem(raw, problem)


def test_a_spec_with_wrappers_survives_a_round_trip():
    raw = ppo(env__wrappers=["a.b:C", {"name": "d:E", "x": [1, {"y": None}]}])
    spec = parse(raw)
    assert parse(spec.to_json()) == spec
    assert spec.env.wrapped_by == (("a.b:C", {}), ("d:E", {"x": [1, {"y": None}]}))


def test_an_agent_is_checked_against_what_the_wrappers_return():
    spec = parse(ppo(env__wrappers=[f"{HERE}:worded"]))
    with pytest.raises(SpecError, match="Text space"):
        check_spaces("here", spec)


def test_a_policy_outside_of_training_has_the_wrapped_environment(env_spec):
    adapter = PolicyAdapter(env_spec("Pendulum-v1", wrappers=[SCALED]))
    env = adapter.make_env()
    assert isinstance(env, Scaled)
    assert env.factor == 2.0
    env.close()


def test_the_return_of_the_random_agent_is_that_of_the_wrapped_environment():
    spec = EnvSpec(name="CartPole-v1", max_frame=1)
    more = spec.model_copy(update={"wrappers": (f"{HERE}:Rewarded",)})
    other = spec.model_copy(
        update={"wrappers": ({"name": f"{HERE}:Rewarded", "each": 3},)}
    )
    assert len({environment_key(each) for each in (spec, more, other)}) == 3


def test_a_game_is_wrapped_around_its_preprocessing(build):
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    env = build(
        "ALE/Pong-v5", num_envs=1, wrappers=["gymnasium.wrappers:FlattenObservation"]
    )
    assert env.observation_space.shape == (4 * 84 * 84,)
    assert env.layout.frames == 1


@pytest.mark.medium
def test_wrapped_environments_are_filmed_and_stepped_from_one_seed(
    build, random_actions
):
    keys = {"wrappers": [SCALED], "num_envs": 2}
    one, other = (
        build("Acrobot-v1", 5, **keys, vectorization_mode=m) for m in ("sync", "async")
    )
    actions = random_actions(one, 100)
    assert_equal(steps(one, actions), steps(other, actions))
    assert isinstance(one.raw.envs[0], gymnasium.Wrapper)
