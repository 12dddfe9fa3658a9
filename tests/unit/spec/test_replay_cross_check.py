"""What has to fit between an algorithm that replays, its memory and its environments."""

import pytest

from slm_lab.core.errors import SpecError
from tests.support import parse, q_learning


def problems(**changes):
    try:
        parse(q_learning("DQN", **changes))
    except SpecError as error:
        return [str(problem) for problem in error.problems]
    return []


def sizes(max_size, num_envs, num_steps):
    return {
        "agent__memory__max_size": max_size,
        "agent__memory__batch_size": 1,
        "env__num_envs": num_envs,
        "agent__algorithm__num_step_returns": num_steps,
    }


@pytest.mark.parametrize(("num_envs", "num_steps"), [(1, 1), (4, 1), (1, 5), (8, 3)])
def test_a_memory_holds_all_steps_of_a_return_of_every_environment(num_envs, num_steps):
    least = num_envs * num_steps
    assert problems(**sizes(least, num_envs, num_steps)) == []
    if least > 1:
        (told,) = problems(**sizes(least - 1, num_envs, num_steps))
        assert told.startswith(f"agent.memory.max_size = {least - 1}: must be >= num_envs")
        assert f"{num_envs} × {num_steps} = {least}" in told


@pytest.mark.parametrize("num_envs", [1, 4])
def test_the_newest_steps_leave_room_for_older_ones_in_a_batch(num_envs):
    changes = {"agent__memory__use_cer": True, "env__num_envs": num_envs}
    assert problems(**changes, agent__memory__batch_size=num_envs + 1) == []
    (told,) = problems(**changes, agent__memory__batch_size=num_envs)
    assert told.startswith(f"agent.memory.batch_size = {num_envs}: must be > env.num_envs")


@pytest.mark.parametrize("key", ["training_iter", "training_batch_iter"])
def test_an_exact_ratio_leaves_no_other_number_of_gradient_steps(key):
    path = f"agent__algorithm__{key}"
    ones = {"agent__algorithm__training_iter": 1, "agent__algorithm__training_batch_iter": 1}
    exact = {"agent__algorithm__update_to_data": 0.5}
    assert problems(**ones, **exact) == []
    (told,) = problems(**{**ones, path: 3}, **exact)
    assert told.startswith(f"agent.algorithm.{key} = 3: must be 1 with update_to_data")
    assert problems(**{**ones, path: 3}) == []
