"""What has to fit between an algorithm that replays, its memory and its environments."""

import pytest

from slm_lab.core.errors import SpecError
from slm_lab.spec.load import parse_spec
from slm_lab.spec.profile import dev_profile
from tests.support import actor_critic, parse, ppo, q_learning, soft


def problems(**changes):
    return problems_of(q_learning("DQN", **changes))


def problems_of(raw):
    try:
        parse(raw)
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


@pytest.mark.parametrize(("ratio", "told"), [(1000, []), (1001, ["must be <= 1000"])])
def test_a_training_event_is_no_longer_than_one_can_wait_for(ratio, told):
    once = {"agent__algorithm__training_iter": 1, "agent__algorithm__training_batch_iter": 1}
    found = problems(**once, agent__algorithm__update_to_data=ratio)
    assert [each.split(": ")[1] for each in found] == told


@pytest.mark.parametrize(
    ("key", "most"), [("training_start_step", 999), ("training_frequency", 1000)]
)
def test_learning_begins_before_the_run_ends(key, most):
    path = f"agent__algorithm__{key}"
    assert problems(**{path: most}) == []
    (told,) = problems(**{path: most + 1})
    assert told.startswith(f"agent.algorithm.{key} = {most + 1}: must be <")
    assert told.endswith("env.max_frame (1000), or the run ends before anything is learned")


@pytest.mark.parametrize(
    ("start", "max_frame"), [(0, 10), (900, 1000), (99_999, 100_000), (5000, 1e6)]
)
@pytest.mark.parametrize("num_envs", [1, 16])
def test_a_spec_made_short_still_learns_and_loads_again(start, max_frame, num_envs):
    raw = q_learning(
        "DQN",
        agent__algorithm__training_start_step=start,
        agent__algorithm__training_frequency=4,
        env__num_envs=num_envs,
        env__max_frame=max_frame,
    )
    short = dev_profile(parse_spec("s", raw))
    assert start < short.env.max_frame <= start + 2000
    assert parse_spec("s", short.to_json()) == short


def prioritized(beta):
    memory = {"name": "PrioritizedReplay", "batch_size": 16, "max_size": 200, "beta": beta}
    return problems(agent__memory=memory)


@pytest.mark.parametrize(
    ("beta", "wrong"),
    [
        ({"start_val": 1.0}, []),
        ({"start_val": 1.1}, ["start_val"]),
        ({"start_val": -0.1}, ["start_val"]),
        ({"name": "linear_decay", "start_val": 0.4, "end_val": 1.0, "end_step": 9}, []),
        ({"name": "linear_decay", "start_val": 0.4, "end_val": 1.5, "end_step": 9}, ["end_val"]),
    ],
)
def test_the_correction_of_a_bias_is_between_none_and_whole(beta, wrong):
    found = prioritized(beta)
    assert [text.split(" = ")[0] for text in found] == [f"agent.memory.beta.{key}" for key in wrong]
    assert all(text.endswith("must be in [0, 1]") for text in found)


@pytest.mark.parametrize("raw", [q_learning("DQN"), actor_critic(), ppo()])
def test_a_memory_holds_a_batch(raw):
    """That of self-imitation too."""
    if raw["agent"]["algorithm"]["name"] in ("ActorCritic", "PPO"):
        raw["agent"]["algorithm"]["name"] = {"ActorCritic": "SIL"}.get(
            raw["agent"]["algorithm"]["name"], "PPOSIL"
        )
        raw["agent"]["memory"]["sil_replay_name"] = "Replay"
    raw["agent"]["memory"] |= {"batch_size": 64, "max_size": 64}
    assert problems_of(raw) == []
    raw["agent"]["memory"]["max_size"] = 63
    assert problems_of(raw) == ["agent.memory.max_size = 63: must be >= batch_size (64)"]


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"log_alpha_min": -5.0, "log_alpha_max": 0.5}, []),
        ({"log_alpha_min": 0.0}, []),
        ({"log_alpha_min": -5.0, "log_alpha_max": -1.0}, []),
        ({"log_alpha_min": 0.01}, ["log_alpha_min = 0.01: must be <= 0: it is ln α"]),
        ({"log_alpha_min": -1.0, "log_alpha_max": -1.0}, ["log_alpha_max = -1.0: must be > log"]),
        ({"log_alpha_min": -1.0, "log_alpha_max": -2.0}, ["log_alpha_max = -2.0: must be > log"]),
    ],
)
def test_the_bounds_of_the_temperature_are_logarithms_in_order(keys, wrong):
    raw = soft("SoftActorCritic")
    raw["agent"]["algorithm"] |= keys
    found = problems_of(raw)
    assert len(found) == len(wrong)
    for text, start in zip(found, wrong, strict=True):
        assert text.startswith(f"agent.algorithm.{start}")
