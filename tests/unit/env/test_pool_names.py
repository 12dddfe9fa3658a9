"""Names of environments that envpool alone has."""

import importlib.util

import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal

from slm_lab.core.errors import MissingExtraError, SpecError, UsageError
from slm_lab.core.masks import draw_allowed, mask_columns
from slm_lab.core.plugins import typed_modules
from slm_lab.env.check import check_env
from slm_lab.env.lookup import find_env
from slm_lab.env.pool_names import is_pooled, opengl_fault
from slm_lab.env.simulators.envpool import PooledEnv
from slm_lab.env.versions import env_record
from slm_lab.records.trust import modules_at

needs_envpool = pytest.mark.skipif(
    importlib.util.find_spec("envpool") is None,
    reason="the extra envpool is not installed",
)
NAMES = ["envpool:Hopper-v5", "playground/CartpoleBalance", "pettingzoo:sisl.b_v1"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_the_lab_finds_names_no_module(
    env_spec, name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name.partition(':')[0]}".replace("/", "_")).mkdir()
    assert typed_modules(name) == ()
    assert env_spec(name).code_names == ()
    assert modules_at([{"env.name": name}]) == ()


def test_a_wrapper_of_a_module_called_like_a_word_still_needs_trust(env_spec):
    spec = env_spec("CartPole-v1", wrappers=["envpool:Wrapper"])
    assert "envpool:Wrapper" in spec.code_names
    assert modules_at([{"env.wrappers": ["envpool:Wrapper"]}]) == ("envpool",)


@pytest.mark.parametrize("name", NAMES[:2])
def test_without_envpool_its_names_have_the_command(env_spec, name, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda module: None if module == "envpool" else find(module),
    )
    assert check_env(env_spec(name)) == []
    with pytest.raises(MissingExtraError, match=r'pip install "slm-lab\[envpool\]"'):
        find_env(env_spec(name))


def test_keys_of_single_environments_make_pools_of_one(env_spec):
    name = "envpool:MountainCar-v0"
    assert is_pooled(env_spec(name))
    assert not is_pooled(env_spec(name, info_keys=["x"]))
    assert not is_pooled(env_spec(name, vectorization_mode="sync"))


@needs_envpool
def test_torch_steps_no_environment_of_envpool(env_spec):
    spec = env_spec("envpool:CartPole-v1", backend="torch")
    (problem,) = check_env(spec)
    assert problem.path == "env.backend"


@needs_envpool
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("envpool:Hoper-v5", "envpool:Hopper-v5"),
        ("playground/CartpolBalance", "playground/CartpoleBalance"),
        ("myoTorsPoseFixed-v0", "envpool:myoTorsoPoseFixed-v0"),
    ],
)
def test_a_misspelt_id_has_the_nearest_one(env_spec, name, hint):
    with pytest.raises(SpecError, match=f"did you mean {hint}"):
        find_env(env_spec(name))


@needs_envpool
def test_all_54_tasks_of_playground_exist(env_spec):
    from slm_lab.env.pool_names import playground_names

    names = [*playground_names()]
    assert len(names) == 54
    for name in names:
        assert find_env(env_spec(name)).id == name


@needs_envpool
@pytest.mark.parametrize("mode", [None, "sync"])
def test_parts_become_rows_and_limits_truncate(build, mode):
    env = build(
        "playground/CartpoleBalance", num_envs=2, max_t=5, vectorization_mode=mode
    )
    assert env.reset().shape == (2, 5)
    steps = [env.step(np.zeros((2, 1), np.float32)) for _ in range(10)]
    ended = [step.truncated.all() for step in steps]
    assert ended == [t % 5 == 0 for t in range(1, 11)]
    assert not any(step.terminated.any() for step in steps)


@needs_envpool
@pytest.mark.parametrize("mode", [None, "sync"])
def test_one_seed_gives_the_same_episodes(build, mode):
    first, same, other = (
        build(
            "envpool:FetchReach-v4", seed, num_envs=2, vectorization_mode=mode
        ).reset()
        for seed in (1, 1, 2)
    )
    assert_array_equal(first, same)
    assert (first != other).any()


@needs_envpool
def test_whole_numbers_between_bounds_are_choices(build):
    env = build("envpool:Jumanji/Tetris-v0", num_envs=2)
    env.reset()
    assert env.action_space.nvec.tolist() == [4, 10]
    env.step(np.array([[3, 9], [0, 0]]))


@needs_envpool
def test_a_game_of_several_players_is_refused(build):
    with pytest.raises(SpecError, match="up to 2 players act in it"):
        build("envpool:TicTacToe-v1")


@needs_envpool
@pytest.mark.parametrize("name", ["Cig-v1", "MultiDuel-v1"])
def test_a_game_that_waits_for_others_is_refused(env_spec, name):
    for keys in ({"name": f"envpool:{name}"}, {"name": name, "backend": "envpool"}):
        with pytest.raises(SpecError, match="it waits for other players"):
            find_env(env_spec(**keys))


MASKED_GAMES = {
    "envpool:Game2048-v1": ("action_mask", spaces.Discrete(4)),
    "envpool:Play2048-v1": ("info.legal_action_mask", spaces.Discrete(4)),
    "envpool:Tetris-v0": ("action_mask", spaces.Discrete(40)),
    "envpool:Connector-v2": ("action_mask", spaces.MultiDiscrete([5] * 10)),
}


@needs_envpool
@pytest.mark.parametrize("mode", [None, "sync"])
@pytest.mark.parametrize("name", MASKED_GAMES)
def test_a_pool_tells_which_actions_are_allowed(build, name, mode):
    place, actions = MASKED_GAMES[name]
    env = build(name, num_envs=2, action_mask=place, vectorization_mode=mode)
    assert env.action_space == actions
    rng = np.random.default_rng(0)
    obs = env.reset()
    columns = mask_columns(env.layout)
    ended = 0
    for _ in range(300):
        drawn = draw_allowed(env.layout, obs, rng)
        step = env.step(drawn.reshape(2, *actions.shape))
        obs = step.obs
        assert obs[:, columns].any(1).all()
        ended += 0 if step.finished is None else len(step.finished.env_index)
    assert ended > 0


@needs_envpool
def test_masks_of_an_environment_that_gymnasium_has_too_are_refused(env_spec):
    spec = env_spec("CartPole-v1", backend="envpool", action_mask="info.mask")
    (problem,) = check_env(spec)
    assert "envpool has no masks of Gymnasium's environments" in str(problem)


@needs_envpool
def test_mujoco_is_drawn_or_says_in_one_line_why_not():
    fault = opengl_fault()
    env = PooledEnv(
        "CartpoleBalance-v1", "rgb_array", render_width=64, render_height=48
    )
    if fault is not None:
        with pytest.raises(UsageError, match="cannot be drawn: envpool draws MuJoCo"):
            env.reset()
        return
    env.reset(seed=0)
    image = env.render()
    assert image.shape == (48, 64, 3)
    assert image.std() > 1


@needs_envpool
@pytest.mark.parametrize("mode", [None, "sync"])
def test_the_run_records_that_envpool_steps(env_spec, mode):
    spec = env_spec("envpool:CartPole-v1", vectorization_mode=mode)
    assert env_record(spec)["backend"] == "envpool"


@needs_envpool
def test_an_unknown_argument_has_the_nearest(env_spec):
    (problem,) = check_env(env_spec("envpool:CartpoleBalance-v1", frame_skp=2))
    assert "did you mean frame_skip?" in str(problem)
