"""Recipes: every kind of spaces finds one, and each is a spec that fits."""

import json

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.env.make import describe_spaces
from slm_lab.recipes.recipe import (
    GAMES,
    MINATAR,
    Recipe,
    choose_recipe,
    recipe_files,
    recipe_names,
    resolve_recipe,
)
from slm_lab.records.trust import FLATTEN, modules_of
from slm_lab.spec.checks.algorithm import action_space_problems
from slm_lab.spec.checks.observations import observation_problems
from slm_lab.spec.load import load_spec
from slm_lab.spec.schema.env import EnvSpec
from tests.unit.recipes.toy_envs import ENVS


def env(name, **keys):
    return EnvSpec(name=name, max_frame=1, **keys)


CHOICES = [
    ("ppo", "CartPole-v1", "ppo"),
    ("ppo", "Pendulum-v1", "ppo_continuous"),
    ("ppo", ENVS["images"], "ppo_image"),
    ("ppo", ENVS["large images"], "ppo_image"),
    ("ppo", ENVS["float images"], "ppo_image"),
    ("ppo", ENVS["small images"], "ppo_image"),
    ("dqn", ENVS["small images"], "dqn_image"),
    ("ppo", ENVS["small float images"], "ppo_image"),
    ("ppo", ENVS["grids"], "ppo"),
    ("ppo", ENVS["float grids"], "ppo"),
    ("sac", ENVS["grids"], "sac"),
    ("ppo", ENVS["image in a dict"], "ppo_image"),
    ("ppo", ENVS["images, continuous"], "ppo_image_continuous"),
    ("ppo", ENVS["multi-discrete"], "ppo"),
    ("a2c", "CartPole-v1", "a2c"),
    ("a2c", "Pendulum-v1", "a2c_continuous"),
    ("a2c", ENVS["images"], "a2c_image"),
    ("dqn", "CartPole-v1", "dqn"),
    ("dqn", ENVS["images"], "dqn_image"),
    ("sac", "CartPole-v1", "sac"),
    ("sac", "Pendulum-v1", "sac_continuous"),
    ("crossq", "Pendulum-v1", "crossq_continuous"),
    ("redq", "Pendulum-v1", "redq_continuous"),
    ("droq", "Pendulum-v1", "droq_continuous"),
    ("tqc", "Pendulum-v1", "tqc_continuous"),
    ("td3", "Pendulum-v1", "td3_continuous"),
    ("sac", ENVS["images, continuous"], "sac_image_continuous"),
    ("td3", ENVS["images, continuous"], "td3_image_continuous"),
    ("crossq", ENVS["images, continuous"], "crossq_image_continuous"),
    ("vmpo", "CartPole-v1", "vmpo"),
    ("vmpo", "Pendulum-v1", "vmpo_continuous"),
    ("vmpo", ENVS["multi-discrete"], "vmpo"),
    *(
        (word, name, f"{word}{kind}")
        for word in ("c51", "qrdqn", "iqn", "rainbow", "pqn")
        for name, kind in (("CartPole-v1", ""), (ENVS["images"], "_image"))
    ),
]


@pytest.mark.parametrize(("algorithm", "name", "recipe"), CHOICES)
def test_the_recipe_follows_from_the_spaces_and_fits_them(algorithm, name, recipe):
    chosen = choose_recipe(algorithm, env(name))
    assert chosen.name == recipe
    spec = load_spec(*chosen)
    spaces = describe_spaces(spec.env)
    is_choice = spaces.actions.kind == "discrete"
    assert not action_space_problems(spec.agent.algorithm, *spaces.actions)
    assert not observation_problems(spec.agent, spaces.layout, is_choice)


@pytest.mark.parametrize(
    ("kind", "shape", "scale"),
    [
        ("images", (12, 40, 40), True),
        ("large images", (12, 84, 84), True),
        ("float images", (12, 64, 64), False),
        ("small images", (12, 20, 20), True),
        ("small float images", (12, 20, 20), False),
    ],
)
def test_images_are_resized_and_scaled_only_where_they_must_be(kind, shape, scale):
    file, name, sets = resolve_recipe("ppo", ENVS[kind], ["agent.net.gpu=false"], ())
    spec = load_spec(file, name, sets)
    assert describe_spaces(spec.env).layout.shape == shape
    assert spec.agent.net.normalize is scale
    assert sets[-1] == "agent.net.gpu=false"


def test_the_users_wrappers_of_a_grid_come_before_the_one_that_makes_it_a_vector():
    wrapper = {"name": "gymnasium.wrappers:MaxAndSkipObservation", "skip": 2}
    sets = [f"env.wrappers=[{json.dumps(wrapper)}]", "env.max_frame=9000"]
    file, name, sets = resolve_recipe("ppo", ENVS["grids"], sets, ())
    spec = load_spec(file, name, sets)
    assert list(spec.env.wrappers) == [wrapper, FLATTEN]
    assert spec.env.max_frame == 9000
    assert modules_of(spec) == ("gymnasium.wrappers",)  # for the user's wrapper


def test_a_run_of_a_grid_is_resumed_without_a_permission_that_its_user_never_gave():
    spec = load_spec(*resolve_recipe("ppo", ENVS["grids"], ["env.max_frame=9000"], ()))
    assert list(spec.env.wrappers) == [FLATTEN]
    assert modules_of(spec) == ()


def test_a_grid_is_a_vector_for_its_recipe():
    file, name, sets = resolve_recipe("ppo", ENVS["grids"], [], ())
    spec = load_spec(file, name, sets)
    assert describe_spaces(spec.env).layout.shape == (147,)


def test_every_recipe_is_chosen_for_some_environment():
    chosen = {recipe for _, _, recipe in CHOICES}
    assert chosen == {name for file in recipe_files() for name in recipe_names(file)}


def test_atari_games_have_their_own_templates():
    pytest.importorskip("ale_py", reason="needs the extra atari")
    for algorithm, name in GAMES.items():
        chosen = choose_recipe(algorithm, env("ALE/Pong-v5"))
        assert chosen == Recipe(f"{name}.json", name, ("env=ALE/Pong-v5",))
        load_spec(*chosen)


def test_minatar_has_its_own_templates_and_else_the_recipes_of_vectors():
    pytest.importorskip("minatar", reason="needs the extra minatar")
    game = "MinAtar/Breakout-v1"
    for algorithm, name in MINATAR.items():
        chosen = choose_recipe(algorithm, env(game))
        assert chosen == Recipe(f"{name}.json", name, (f"env={game}",))
        load_spec(*chosen)
    assert choose_recipe("a2c", env(game)).name == "a2c"
    wrapped = env(game, wrappers=[FLATTEN])
    assert choose_recipe("ppo", wrapped).name == "ppo"


@pytest.mark.parametrize(
    ("algorithm", "name", "words"),
    [
        (
            "dqn",
            "Pendulum-v1",
            "dqn has no recipe for vectors and continuous actions of Pendulum-v1; ",
        ),
        ("dqn", ENVS["multi-discrete"], "vectors and multi-discrete actions"),
        (
            "crossq",
            "CartPole-v1",
            "choose one of: a2c, c51, dqn, iqn, ppo, pqn, qrdqn, rainbow, sac, vmpo",
        ),
        (
            "sac",
            ENVS["images"],
            "choose one of: a2c, c51, dqn, iqn, ppo, pqn, qrdqn, rainbow",
        ),
        (
            "sac",
            ENVS["unbounded"],
            "no recipe for vectors and unbounded continuous actions",
        ),
        (
            "ppg",
            "Pendulum-v1",
            "ppg: there is no recipe; recipes are a2c, c51, crossq, dqn, droq, iqn, "
            "ppo, pqn, qrdqn, rainbow, redq, sac, td3, tqc, vmpo",
        ),
        ("trpo", "Pendulum-v1", "TRPO is not available; PPO may do"),
        ("MaskablePPO", "CartPole-v1", "MaskablePPO is PPO with env.action_mask"),
        ("maskableppo", "CartPole-v1", "MaskablePPO is PPO with env.action_mask"),
    ],
)
def test_without_a_recipe_the_algorithms_that_have_one_are_named(
    algorithm, name, words
):
    with pytest.raises(UsageError, match=r".") as raised:
        choose_recipe(algorithm, env(name))
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ppo", "CartPole-v1"), ("recipe/ppo.yaml", "ppo")),
        (("sac", "Pendulum-v1"), ("recipe/sac.yaml", "sac_continuous")),
    ],
)
def test_an_algorithm_and_an_environment_name_a_recipe(words, expected):
    sets = ("env.max_frame=300", "agent.algorithm.gamma=0.9")
    assert resolve_recipe(*words, sets, ()) == (*expected, (f"env={words[1]}", *sets))


def test_an_algorithm_in_capitals_names_its_recipe():
    assert resolve_recipe("SAC", "Pendulum-v1", (), ()) == resolve_recipe(
        "sac", "Pendulum-v1", (), ()
    )


def test_keys_of_the_environment_count_when_the_recipe_is_chosen():
    pytest.importorskip("Box2D", reason="needs the extra box2d")
    _, chosen, _ = resolve_recipe("ppo", "LunarLander-v3", ["env.continuous=true"], ())
    assert chosen == "ppo_continuous"


def test_a_recipe_alone_asks_for_an_environment():
    with pytest.raises(UsageError, match="add an environment: slm-lab run SAC ENV"):
        resolve_recipe("SAC", None, (), ())


@pytest.mark.parametrize(
    "words", [("ppo_cartpole", "ppo_cartpole"), ("ppo", "ppo_image")]
)
def test_files_and_their_specs_come_first(words):
    assert resolve_recipe(*words, ("env=X",), ()) == (*words, ("env=X",))


def test_a_file_of_the_working_folder_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ppo").write_text("{}")
    assert resolve_recipe("ppo", "CartPole-v1", (), ()) == ("ppo", "CartPole-v1", ())
