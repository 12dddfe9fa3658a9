"""`-s`: variables and dotted paths."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.core.errors import SpecError
from slm_lab.spec.load import load_spec
from slm_lab.spec.override import fill, parse_setting, variables, with_value
from tests.support import ppo, soft
from tests.unit.spec.spec_data import changed

KEYS = st.text("abc_", min_size=1, max_size=3)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text("xyz$")
    | st.lists(st.integers())
)


def load(*sets, **overrides):
    return load_spec("demo", "ppo_cartpole", sets, overrides)


def problems(*sets):
    with pytest.raises(SpecError) as caught:
        load(*sets)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=3e-4", 3e-4),
        ("a=1e6", 1e6),
        ("a=true", True),
        ("a=null", None),
        ("a=[64, 64]", [64, 64]),
        ('a={"name": "Adam"}', {"name": "Adam"}),
        ("a=CartPole-v1", "CartPole-v1"),
        ("a=NaN", "NaN"),
        ("a=", ""),
        ("a=b=c", "b=c"),
        ("a=" + "[" * 19_000, "[" * 19_000),
    ],
)
def test_a_value_is_json_or_else_a_string(text, value):
    assert parse_setting(text) == ("a", value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("env.info_keys=[is_success]", "must be a list, in JSON: words have double"),
        ("env.kwargs={name: maze}", "must be a block {…}, in JSON: words have double"),
        ("env.info_keys=is_success", "must be a list"),
        ("agent.net.hid_layers=[[x]", "must be a list, in JSON: words have double"),
        ("env.max_frame=[1]", "must be a whole number"),
    ],
)
def test_a_list_that_is_no_json_is_said_to_be_none(text, message):
    (problem,) = problems(text)
    _, _, words = problem.partition(": must")
    assert f"must{words}".removesuffix(" quotes") == message


def test_settings_are_applied_in_order_and_overrides_last():
    spec = load_spec(
        "demo",
        "ppo_cartpole",
        [
            "agent.algorithm.gamma=0.9",
            "agent.algorithm.gamma=0.8",
            "agent.algorithm.lam=0.7",
        ],
        {"agent.algorithm.lam": 0.6},
    )
    assert (spec.agent.algorithm.gamma, spec.agent.algorithm.lam) == (0.8, 0.6)


def test_setting_one_key_of_a_block_that_the_file_leaves_out_keeps_the_others():
    spec = load("meta.search_resources.gpu=0.5")
    assert spec.meta.search_resources.gpu == 0.5
    assert spec.meta.search_resources.cpu == 1


RATE = "agent.net.optim_spec.lr"


@pytest.fixture
def load_without_optimizer(tmp_path):
    """Loads a spec from a file that leaves out `agent.net.optim_spec`, and sets its
    `lr`."""
    path = tmp_path / "s.json"

    def load_file(raw, *sets):
        net = {
            key: value
            for key, value in raw["agent"]["net"].items()
            if key != "optim_spec"
        }
        path.write_text(json.dumps({"s": changed(raw, agent__net=net)}))
        return load_spec(path, None, [f"{RATE}=0.5", *sets])

    return load_file


@pytest.mark.parametrize(
    ("raw", "sets"),
    [
        (ppo(), []),
        (changed(ppo(), net__normalize=True), []),
        (changed(ppo(), env__max_frame="${frames}"), ["frames=500"]),
        (changed(ppo(), net__hid_layers=["${width}"]), ["width=8"]),
        (changed(soft("SoftActorCritic"), algorithm__name="SAC"), []),
    ],
    ids=["plain", "legacy key", "variable", "variable of the net", "alias"],
)
def test_a_block_that_the_file_leaves_out_has_its_defaults_in_every_file(
    load_without_optimizer, raw, sets
):
    optimizer = load_without_optimizer(raw, *sets).agent.net.optim_spec
    assert (optimizer.name, optimizer.args) == ("GlobalAdam", {"lr": 0.5})


@pytest.mark.parametrize(
    "path", ["agent.algorithm.gamma", "env.num_envs", "meta.max_session"]
)
def test_beside_a_block_that_the_file_leaves_out_only_other_problems_are_reported(
    load_without_optimizer, path
):
    with pytest.raises(SpecError) as caught:
        load_without_optimizer(changed(ppo(), {path: -1}))
    assert [problem.path for problem in caught.value.problems] == [path]


def test_entries_of_lists_are_set_by_number():
    assert load("agent.net.hid_layers.1=32").agent.net.hid_layers == (64, 32)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        (
            "agent.algorithm.gama=1",
            "agent.algorithm.gama = 1: unknown key; did you mean gamma?",
        ),
        ("agnt.name=x", "agnt = {'name': 'x'}: unknown key; did you mean agent?"),
        ("env.num_env=4", "env.num_env = 4: unknown key; did you mean num_envs?"),
        ("agent.name.x=4", "agent.name = 'PPO': is no block; it has no x"),
        (
            "agent.net.hid_layers.7=4",
            "agent.net.hid_layers.7: there is no such entry in a list of 2",
        ),
        (
            "foo=3",
            "-s foo: the spec has no ${foo}; a key of the spec is written with dots",
        ),
        ("env=3", "-s env: is a whole block; set a key of it, as env.name=…"),
        ("agent.algorithm.gamma", "-s agent.algorithm.gamma: must be key=value"),
        ("=3", "-s =3: must be key=value"),
        ("agent..gamma=3", "-s agent..gamma=3: must be key=value"),
        ("meta.max_session=two", "meta.max_session = 'two': must be a whole number"),
    ],
)
def test_a_setting_that_fits_nowhere_is_refused(setting, problem):
    assert problem in problems(setting)


@pytest.mark.parametrize(
    "key", ["frame_stack", "max_steps", "frame_skip", "num_threads"]
)
def test_a_key_that_resembles_one_of_the_lab_is_checked_by_the_environment(key):
    """It may be an argument of the environment."""
    assert load(f"env.{key}=3").env.arguments == {key: 3}


def test_arguments_of_the_environment_can_be_set():
    assert load("env.sutton_barto_reward=true").env.arguments == {
        "sutton_barto_reward": True
    }


def test_variables_take_their_type_or_are_uses_nodes():
    tree = {"a": "${x}", "b": ["run ${x} of ${y}", 3], "c": "$x ${ }"}
    assert variables(tree) == ["x", "y", " "]
    assert fill(tree, {"x": 1e6, "y": "z"}) == {
        "a": 1e6,
        "b": ["run 1000000.0 of z", 3],
        "c": "$x ${ }",
    }


@given(st.recursive(VALUES, lambda inner: st.dictionaries(KEYS, inner), max_leaves=8))
def test_filling_nothing_changes_nothing(tree):
    assert fill(tree, {}) == tree


@given(st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES)), KEYS, KEYS, VALUES)
def test_setting_a_value_leaves_the_original_alone(tree, first, second, value):
    before = repr(tree)
    after = with_value(tree, f"{first}.{second}", value)
    assert repr(tree) == before
    assert after[first][second] == value
    assert all(after[key] == tree[key] for key in tree if key != first)


PARTS = {
    "robot.pose": {"type": "MLPNet", "hid_layers": [4]},
    "robot.pose.fast": {"type": "MLPNet", "hid_layers": [4]},
}


@pytest.mark.parametrize("name", PARTS)
def test_a_setting_reaches_into_a_block_whose_name_has_dots(name):
    tree = {"net": {"parts": PARTS}, "wrappers": [{"a": 1}, PARTS]}
    for block in ("net.parts", "wrappers.1"):
        after = with_value(tree, f"{block}.{name}.hid_layers", [7])
        parts = after["net"]["parts"] if block == "net.parts" else after["wrappers"][1]
        assert parts == {**PARTS, name: {"type": "MLPNet", "hid_layers": [7]}}


def test_a_setting_sets_an_argument_in_kwargs_beside_it():
    spec = load("env.kwargs.sutton_barto_reward=true")
    assert spec.env.arguments == {"sutton_barto_reward": True}


def test_a_part_with_a_dot_in_its_name_is_set_whole():
    (problem,) = problems('agent.net.parts.robot.pose={"type": "MLPNet"}')
    assert problem.startswith("agent.net.parts.robot.type: is missing: one of")
    assert """set in JSON: -s 'agent.net.parts={"robot.pose": …}'""" in problem
