"""Actions in a Tuple or Dict, from the agent's rows to the environment."""

import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal

from slm_lab.core.actions import MixedActions
from slm_lab.core.errors import LabError, SpecError
from slm_lab.env.convert.action import action_converter
from slm_lab.env.convert.mask import MaskReader
from slm_lab.env.convert.nested import element
from slm_lab.spec.checks.algorithm import action_space_problems
from tests.learning.probe_envs import register_probes
from tests.support import parse, ppo, q_learning, soft

register_probes()

DEEP = spaces.Dict(
    {
        "move": spaces.Discrete(3, start=2),
        "aim": spaces.Box(-2.0, 6.0, (2, 3), np.float64),
        "deep": spaces.Tuple(
            [
                spaces.MultiDiscrete([[2, 3], [4, 1]]),
                spaces.MultiBinary((2, 2)),
                spaces.Box(-np.inf, np.inf, (), np.float32),
            ]
        ),
    }
)


def test_a_row_has_the_columns_of_the_parts_in_the_order_of_the_space():
    converter = action_converter(DEEP, "X")
    # aim, deep.0, deep.1, deep.2, move: a plain dict sorts its keys
    numbers = [-1.0, 1.0, 0.0, 0.5, 5.0, -5.0]
    row = np.array([[*numbers, 1, 2, 3, 0, 0, 1, 1, 0, 7.5, 2]], np.float32)
    action = element(DEEP, converter.convert(row), 0)
    assert_array_equal(action["aim"], [[-2, 6, 2], [4, 6, -2]])
    choices, bits, number = action["deep"]
    assert_array_equal(choices, [[1, 2], [3, 0]])
    assert_array_equal(bits, [[0, 1], [1, 0]])
    assert number == 7.5
    assert action["move"] == 4
    assert action in DEEP


def test_every_random_row_is_an_action_of_the_environment():
    converter = action_converter(DEEP, "X")
    rows = converter.space.draw(np.random.default_rng(0), 50)
    assert all(row in converter.space for row in rows)
    actions = converter.convert(rows)
    assert all(element(DEEP, actions, n) in DEEP for n in range(50))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Tuple([]), "are a Tuple space without parts"),
        (spaces.Dict(a=spaces.Text(3)), 'part "a" of its actions is a Text space'),
        (
            spaces.Dict(a=spaces.Tuple([spaces.Box(0, 3, (2,), np.int64)])),
            'part "a.0" of its actions is a Box of int64 space',
        ),
        (spaces.Tuple([spaces.Box(0, 1, (0,))]), 'part "0" .*has no numbers'),
        (spaces.Tuple([spaces.Discrete(2**30)]), "at most 16,777,216"),
    ],
)
def test_a_part_that_is_not_supported_is_one_line(space, message):
    with pytest.raises(SpecError, match=message):
        action_converter(space, "X")


def test_rows_outside_of_the_space_are_not_in_it():
    space = MixedActions([spaces.Discrete(3), spaces.Box(-1.0, 1.0, (1,))])
    inside = np.array([2.0, 0.5], np.float32)
    assert inside in space
    for row in ([3.0, 0.5], [1.5, 0.5], [2.0, 1.5]):
        assert np.array(row, np.float32) not in space


CHOICES = spaces.Tuple(
    [spaces.Discrete(2), spaces.Box(0.0, 1.0, (1,)), spaces.MultiDiscrete([2, 3])]
)


@pytest.mark.parametrize(
    "mask",
    [
        [0, 1, 1, 0, 1, 0, 1],
        ([0, 1], [1, 0, 1, 0, 1]),
        ([0, 1], None, [[1, 0], [1, 0, 1]]),
        [[0, 1], [1, 0], [1, 0, 1]],
    ],
)
def test_a_mask_has_the_choices_side_by_side_or_the_parts_of_the_action(mask):
    box = spaces.Box(-1.0, 1.0, (1,))
    reader = MaskReader("info.mask", box, CHOICES, "X")
    assert_array_equal(reader.read(mask), [0, 1, 1, 0, 1, 0, 1])


def test_the_keys_of_a_mask_say_which_part_it_is_of_in_any_order():
    box = spaces.Box(-1.0, 1.0, (1,))
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2), "c": box})
    reader = MaskReader("info.mask", box, space, "X")
    assert_array_equal(reader.read({"b": [0, 1], "a": [1, 0]}), [1, 0, 0, 1])
    with pytest.raises(LabError, match="has no b"):
        reader.read({"a": [1, 0]})


@pytest.mark.parametrize("make", [list, np.array])
@pytest.mark.parametrize("in_parts", [False, True])
def test_the_masks_of_a_batch_are_lists_or_arrays(make, in_parts):
    kick = spaces.Dict(aim=spaces.Box(-1, 1, (2,)), kick=spaces.Discrete(3))
    reader = MaskReader("info.mask", spaces.Box(-1, 1, (2,)), kick, "X")
    masks = make([[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 1]])
    value = {"kick": masks} if in_parts else masks
    assert_array_equal(reader.read(value), np.array(masks))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("DQN", "discrete"), ("SoftActorCritic", "discrete and box"), ("TD3", "box")],
)
def test_algorithms_without_a_product_refuse_mixed_actions(name, kinds):
    make = q_learning if name == "DQN" else soft
    (problem,) = action_space_problems(parse(make(name)).agent.algorithm, "mixed")
    refused = f"{name} cannot act in a mixed action space; it is for {kinds} ones"
    assert problem.message == refused


def test_another_distribution_is_refused_for_mixed_actions():
    spec = parse(ppo(agent__algorithm__action_pdtype="Beta"))
    (problem,) = action_space_problems(spec.agent.algorithm, "mixed")
    assert "use default or Product" in problem.message


def test_worker_processes_take_the_same_steps(build):
    keys = {"name": "ProbeChooseAndAim-v0", "num_envs": 2}
    sync, workers = (
        build(**keys, vectorization_mode=mode) for mode in ("sync", "async")
    )
    assert_array_equal(sync.reset(), workers.reset())
    generator = np.random.default_rng(0)
    for _ in range(10):
        rows = sync.action_space.draw(generator, 2)
        first = sync.step(rows)
        second = workers.step(rows)
        assert_array_equal(first.obs, second.obs)
        assert_array_equal(first.reward, second.reward)
