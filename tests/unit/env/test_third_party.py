"""Environments of independent packages, where they are installed."""

import gymnasium
import numpy as np
import pytest

from slm_lab.core.errors import MissingExtraError, SpecError
from slm_lab.env.check import check_env
from slm_lab.env.convert.observation import only_parts
from slm_lab.env.make import describe_spaces
from slm_lab.spec.load import load_spec
from slm_lab.storage.checkpoint import from_plain, to_plain

MINIGRID = "minigrid:MiniGrid-Empty-5x5-v0"


@pytest.fixture
def wrapped(registered):
    """MiniGrid without its text, as a vector and as an image."""
    minigrid = pytest.importorskip("minigrid")

    def parts(**kwargs):
        env = gymnasium.make("MiniGrid-Empty-5x5-v0", **kwargs)
        return gymnasium.wrappers.FilterObservation(env, ["direction", "image"])

    def image(**kwargs):
        env = gymnasium.make("MiniGrid-Empty-5x5-v0", **kwargs)
        return minigrid.wrappers.ImgObsWrapper(env)

    registered("Room-v0", parts)
    registered("Seen-v0", image)


def plays(env, actions):
    env.reset()
    for action in actions:
        step = env.step(action)
        assert np.isfinite(step.next_obs).all()
        assert all(row in env.observation_space for row in step.obs)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_pybullet_runs_by_name(build, random_actions, mode):
    pytest.importorskip("pybullet_envs_gymnasium")
    env = build("HopperBulletEnv-v0", vectorization_mode=mode, max_t=20)
    plays(env, random_actions(env, 50))
    assert not env.exact_state


def test_the_text_of_minigrid_is_named_with_the_remedy(build):
    pytest.importorskip("minigrid")
    with pytest.raises(SpecError) as caught:
        build(MINIGRID)
    (problem,) = caught.value.problems
    assert 'its observation "mission" is a MissionSpace space' in problem.message
    assert problem.message.endswith(
        f"leaves this part out: {only_parts(['direction', 'image'])}"
    )


@pytest.mark.parametrize(
    ("name", "shape"), [("Room-v0", (151,)), ("Seen-v0", (3, 7, 7))]
)
def test_minigrid_without_its_text_is_a_vector_or_an_image(
    build, random_actions, wrapped, name, shape
):
    env = build(name, max_t=20)
    assert env.observation_space.shape == shape
    plays(env, random_actions(env, 50))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("wrapper", "shape"),
    [
        ("minigrid.wrappers:FlatObsWrapper", (2835,)),
        ("minigrid.wrappers:ImgObsWrapper", (3, 7, 7)),
        (
            {
                "name": "gymnasium.wrappers:FilterObservation",
                "filter_keys": ["direction", "image"],
            },
            (151,),
        ),
    ],
    ids=["vector", "image", "parts"],
)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_minigrid_is_wrapped_by_its_spec(build, random_actions, wrapper, shape, mode):
    pytest.importorskip("minigrid")
    keys = {"wrappers": [wrapper], "vectorization_mode": mode, "max_t": 20}
    env = build("MiniGrid-Empty-5x5-v0", **keys)
    assert env.observation_space.shape == shape
    plays(env, random_actions(env, 50))


def test_the_shipped_spec_fits_minigrid():
    pytest.importorskip("minigrid")
    spec = load_spec("ppo_minigrid", "ppo_minigrid")
    assert check_env(spec.env) == []
    assert describe_spaces(spec.env).obs_shape == (2835,)


def test_the_name_of_minigrid_says_what_to_install(monkeypatch, build):
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    monkeypatch.setattr(gymnasium, "registry", {})
    for name in ("MiniGrid-Empty-5x5-v0", "BabyAI-GoToRedBall-v0"):
        with pytest.raises(
            MissingExtraError, match=r'pip install "slm-lab\[minigrid\]"'
        ):
            build(name)


@pytest.mark.parametrize(
    "game", ["Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders"]
)
def test_a_game_of_minatar_goes_on_exactly_from_its_saved_state(
    game, build, random_actions
):
    pytest.importorskip("minatar")
    env, restored = (build(f"MinAtar/{game}-v1", seed) for seed in (0, 9))
    env.reset()
    before, after = np.split(random_actions(env, 600), [90])
    for action in before:
        env.step(action)
    assert env.exact_state
    assert restored.load_state_dict(from_plain(to_plain(env.state_dict())))
    for action in after:
        expected = env.step(action)
        step = restored.step(action)
        assert np.array_equal(step.obs, expected.obs)
        assert np.array_equal(step.reward, expected.reward)
        assert np.array_equal(step.terminated, expected.terminated)


def test_the_name_of_minatar_says_what_to_install(monkeypatch, build):
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
    monkeypatch.setattr(gymnasium, "registry", {})
    with pytest.raises(MissingExtraError, match=r'pip install "slm-lab\[minatar\]"'):
        build("MinAtar/Breakout-v1")
