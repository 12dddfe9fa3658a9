import importlib
import subprocess
import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from slm_lab.core.errors import LabError, MissingExtraError, SpecError, UsageError
from slm_lab.core.registry import ENVS
from slm_lab.env.check import check_env
from slm_lab.env.extras import require
from slm_lab.env.lookup import EXTRAS
from tests.support import needs


def since(name: str, hint: str):
    """A name that older releases of Gymnasium register."""
    return pytest.param(name, hint, marks=needs("gymnasium", "1.3"))


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "gymnasium.envs:Acrobot-v1"]
)
def test_a_valid_environment_has_no_problems(assert_refused, name):
    assert_refused(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("CartPole", "CartPole-v1"),
        ("CartPole-v9", "CartPole-v1"),
        ("CartPole-v²", "there is no such environment"),
        ("cartpole-v1", "CartPole-v1"),
        ("Pendulm-v1", "Pendulum-v1"),
        ("LunarLander-v2", "LunarLander-v3"),
        since("HalfCheetah-v2", "use HalfCheetah-v5"),
        since("Taxi-v3", "Taxi-v4"),
        since("Ant-v3", "use Ant-v5"),
        ("RoboschoolAnt-v1", "its simulator is gone; use Ant-v5"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(assert_refused, build, name, hint):
    assert_refused(name, f"env.name = '{name}': …{hint}")
    with pytest.raises(SpecError, match=hint):
        build(name)


def test_an_old_atari_name_is_replaced_without_ale_py(assert_refused, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    monkeypatch.setattr(gymnasium, "registry", {})
    assert_refused("PongNoFrameskip-v4", "…its simulator is gone; use ALE/Pong-v5")


def test_a_module_that_does_not_import_is_reported(assert_refused):
    assert_refused("no_such_package:Thing-v0", "env.name = …: …no_such_package")


def test_an_error_of_an_import_is_one_line(assert_refused, tmp_path, monkeypatch):
    (tmp_path / "raises_on_import.py").write_text('raise ValueError("not\\nmine")')
    monkeypatch.syspath_prepend(tmp_path)
    assert_refused(
        "raises_on_import:Thing-v0", "…does not import: ValueError: not mine ("
    )


def test_a_plug_in_that_offers_an_id_of_another_is_refused(assert_refused, registries):
    ENVS.register("CartPole-v1", None, "somebody.else:Thing")
    assert_refused("CartPole-v1", "…somebody.else:Thing offers it, too")


@pytest.mark.parametrize(
    ("name", "kwargs", "path", "words"),
    [
        (
            "CartPole-v1",
            {"sutton_barto_rewrd": True},
            "sutton_barto_rewrd",
            "sutton_barto_reward",
        ),
        ("CartPole-v1", {"max_episode_steps": 9}, "max_episode_steps", "max_t"),
        (
            "CartPole-v1",
            {"frame_stack": 4},
            "frame_stack",
            '"stack" with frame_op_len?',
        ),
        ("Pendulum-v1", {"max_steps": 9}, "max_steps", "did you mean max_t?"),
        ("Pendulum-v1", {"gravity": 9.8}, "gravity", "accepts g, render_mode"),
        ("FrozenLake-v1", {"is_slipery": False}, "is_slipery", "is_slippery"),
    ],
)
def test_a_key_that_the_environment_does_not_accept_is_refused(
    assert_refused, build, name, kwargs, path, words
):
    assert_refused(name, f"env.{path} = …: …{words}", kwargs=kwargs)
    with pytest.raises(SpecError, match=path):
        build(name, kwargs=kwargs)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("CartPole-v1", {"sutton_barto_reward": True}),
        ("CartPole-v1", {"render_mode": "rgb_array"}),
        ("Pendulum-v1", {"g": 9.81}),
        ("FrozenLake-v1", {"map_name": "8x8", "is_slippery": False}),
    ],
)
def test_keys_of_the_environment_reach_it(assert_refused, build, name, kwargs):
    assert_refused(name, kwargs=kwargs)
    build(name, kwargs=kwargs).reset()


@pytest.mark.parametrize("mode", ["native", "sync"])
def test_sutton_barto_rewards_punish_the_fall_only(build, mode):
    env = build(
        "CartPole-v1",
        num_envs=1,
        kwargs={"sutton_barto_reward": True},
        vectorization_mode=mode,
    )
    env.reset()
    for _ in range(100):
        step = env.step(np.array([1]))
        assert step.reward[0] == (-1 if step.terminated[0] else 0)


def test_a_native_mode_that_does_not_exist_is_refused(assert_refused, build):
    refused = "env.vectorization_mode = 'native': …no native vector version"
    assert_refused("Pendulum-v1", refused, vectorization_mode="native")
    with pytest.raises(SpecError):
        build("Pendulum-v1", vectorization_mode="native")


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("ALE/Pong-v5", "atari"),
        ("HopperBulletEnv-v0", "bullet"),
        ("LunarLander-v3", "box2d"),
        ("Ant-v5", "mujoco"),
    ],
)
def test_a_missing_extra_is_reported_with_its_pip_command(
    env_spec, build, monkeypatch, name, extra
):
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=rf'pip install "slm-lab\[{extra}\]"'):
        build(name)
    assert check_env(env_spec(name)) == []
    assert extra in [e.name for e in EXTRAS]


def test_the_package_of_an_extra_typed_before_an_id_is_reported_with_the_extra(
    build, monkeypatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=r'pip install "slm-lab\[minigrid\]"'):
        build("minigrid:MiniGrid-DoorKey-5x5-v0")


@pytest.mark.parametrize("name", ["Mine/MiniGrid-Maze-v0", "MyBulletEnv-v0"])
def test_an_environment_of_the_user_may_have_an_id_like_one_of_an_extra(
    assert_refused, build, registered, monkeypatch, name
):
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    registered(name, "gymnasium.envs.classic_control.cartpole:CartPoleEnv")
    assert_refused(name)
    assert build(name).reset().shape == (3, 4)


def test_an_extra_whose_module_raises_on_import_is_reported_with_the_reason(
    build, tmp_path, monkeypatch
):
    (tmp_path / "pybullet_envs_gymnasium.py").write_text("raise OSError('no library')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pybullet_envs_gymnasium", raising=False)
    monkeypatch.setattr(gymnasium, "registry", {})
    why = (
        r"^pybullet_envs_gymnasium does not import: OSError: no library \(.*, line 1\)"
    )
    with pytest.raises(
        MissingExtraError, match=rf'{why}; run: pip install "slm-lab\[bullet\]"$'
    ):
        build("HopperBulletEnv-v0")


def test_keys_of_a_simulator_that_does_not_import_are_not_checked(
    env_spec, build, registered
):
    registered("Absent-v0", "no_such_simulator:Env")
    assert check_env(env_spec("Absent-v0", kwargs={"speed": 1})) == []
    with pytest.raises(LabError, match="no_such_simulator"):
        build("Absent-v0", kwargs={"speed": 1})


def test_an_environment_whose_code_raises_when_it_is_imported_is_one_line(
    env_spec, tmp_path, monkeypatch, registered
):
    """As MuJoCo does with a MUJOCO_GL that is not there."""
    (tmp_path / "raises_at_once.py").write_text("None.glGetError")
    monkeypatch.syspath_prepend(tmp_path)
    registered("RaisesAtOnce-v0", "raises_at_once:Env")
    with pytest.raises(
        UsageError, match=r"^RaisesAtOnce-v0 does not import: .*glGetError'$"
    ):
        check_env(env_spec("RaisesAtOnce-v0", kwargs={"size": 3}))


def test_a_simulator_that_fails_to_import_is_reported_as_gymnasium_says(
    build, registered
):
    def broken(**kwargs):
        raise gymnasium.error.DependencyNotInstalled("run pip install something")

    with pytest.raises(MissingExtraError, match="pip install something"):
        build(registered("Broken-v0", broken))


def test_other_refusals_of_gymnasium_are_lab_errors(build):
    with pytest.raises(LabError, match="FrozenLake-v1"):
        build("FrozenLake-v1", kwargs={"map_name": "9x9"})


def test_a_plug_in_environment_is_made_by_its_name(build, registries):
    ENVS.register(
        "PluggedIn-v0", None, "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    )
    env = build("PluggedIn-v0", max_t=7)
    del gymnasium.registry["PluggedIn-v0"]
    assert env.reset().shape == (3, 4)
    assert env.exact_state


def test_checking_is_quick_and_imports_no_simulator_and_no_torch():
    code = """
import sys, time
from slm_lab.env.check import check_env
from slm_lab.spec.schema.env import EnvSpec
start = time.perf_counter()
for name in ("LunarLander-v3", "Ant-v5", "CartPole-v1"):
    assert check_env(EnvSpec(name=name, max_frame=1)) == []
print(time.perf_counter() - start)
assert not {"torch", "Box2D", "mujoco", "pygame", "ray"} & set(sys.modules)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 0.3


def test_a_folder_that_an_uninstalled_package_left_behind_is_no_package(
    tmp_path, monkeypatch
):
    (tmp_path / "half_gone" / "plugin").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("half_gone")
    with pytest.raises(
        MissingExtraError, match=r'half_gone .* pip install "slm-lab\[mujoco\]"'
    ):
        require("half_gone", "mujoco")
    require("gymnasium", "mujoco")


class Unspaced(gymnasium.Env):
    """Has its spaces only after a reset."""

    observation_space = None
    action_space = None

    def reset(self, *, seed=None, options=None):
        self.observation_space = self.action_space = gymnasium.spaces.Discrete(2)
        return 0, {}


def old_gym_class(name):
    """A class of a space of the package gym, which Gymnasium replaced."""
    return type(
        name, (), {"__module__": "gym.spaces", "shape": (2,), "dtype": np.float32}
    )


DISCRETE = gymnasium.spaces.Discrete(2)
NO_SPACES = {
    "no observations": (
        {},
        "its observation_space is None after its construction; set it in",
    ),
    "no actions": (
        {"observation_space": DISCRETE},
        "its action_space is None after its",
    ),
    "observations of gym": (
        {"observation_space": old_gym_class("Box")(), "action_space": DISCRETE},
        "its observation_space is a gym.spaces.Box, not a space of gymnasium.spaces; "
        "import that",
    ),
    "actions of gym": (
        {"observation_space": DISCRETE, "action_space": old_gym_class("Discrete")()},
        "its action_space is a gym.spaces.Discrete, not a space of gymnasium.spaces; "
        "import that",
    ),
}


@pytest.mark.parametrize("max_t", [None, 5])
@pytest.mark.parametrize("fault", NO_SPACES)
def test_an_environment_without_spaces_of_gymnasium_is_one_line(
    build, registered, fault, max_t
):
    spaces, message = NO_SPACES[fault]
    name = registered("Unspaced-v0", type("Unspaced", (Unspaced,), spaces))
    with pytest.raises(LabError) as caught:
        build(name, max_t=max_t)
    start = "the environment Unspaced-v0 breaks Gymnasium's interface: "
    assert str(caught.value).startswith(start + message)


@pytest.mark.parametrize("is_class", [True, False])
def test_an_id_that_only_the_old_gym_knows_is_said_to_be_one(
    assert_refused, monkeypatch, is_class
):
    ids = {"OfGym-v0": None}
    registry = ids
    if is_class:
        registry = SimpleNamespace(env_specs=ids)
    registration = SimpleNamespace(registry=registry)
    monkeypatch.setitem(sys.modules, "gym.envs.registration", registration)
    assert_refused(
        "OfGym-v0", "env.name = …: it is registered with the old package gym; register"
    )
