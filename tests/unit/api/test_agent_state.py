"""What an agent remembers: its episodes, what it refuses to see, and its copies."""

import copy
import json
import multiprocessing
import pickle
import warnings

import numpy as np
import pytest
import torch

import slm_lab
from slm_lab.storage.run_dir import FOLDERS, RUN_BLOCK, RunDir
from tests.support import parse, ppo, q_learning, run_session, soft

RNN = {"type": "RecurrentNet", "rnn_hidden_size": 8, "seq_len": 4}
STACKED = {"env__frame_op": "concat", "env__frame_op_len": 3}
KINDS = {
    "ppo": lambda: ppo(env__normalize_obs=True),
    "recurrent": lambda: ppo(agent__net=RNN),
    "stacked": lambda: q_learning("DQN", **STACKED),
    "soft": lambda: soft("SoftActorCritic", env__name="Pendulum-v1", env__max_t=40),
    "bf16": lambda: ppo(agent__net__precision="auto"),
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The agent of a run of 200 frames, by its kind."""
    folders = {}

    def load(kind):
        if kind not in folders:
            run_dir = RunDir(tmp_path_factory.mktemp(kind) / "small", "small")
            for part in FOLDERS:
                (run_dir.root / part).mkdir(parents=True)
            raw = KINDS[kind]()
            spec = parse({**raw, "env": {**raw["env"], "max_frame": 200}})
            run_session(spec, run_dir.root)
            content = {"small": spec.to_json()}
            run_dir.trial_spec_file(0).write_text(json.dumps(content))
            run_dir.spec_file.write_text(json.dumps({**content, RUN_BLOCK: {}}))
            folders[kind] = run_dir.root
        return slm_lab.load(folders[kind])

    return load


def observations(agent, count):
    low, high = (
        np.clip(b, -1, 1)
        for b in (agent.observation_space.low, agent.observation_space.high)
    )
    shape = (count, *agent.observation_space.shape)
    return np.random.default_rng(0).uniform(low, high, shape).astype(np.float32)


def actions(agent, seen, deterministic=True):
    return np.array([agent.act(obs, deterministic) for obs in seen])


def acted_in_a_process(agent, seen, results):
    results.put([actions(agent, seen), actions(agent, seen, deterministic=False)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda agent: pickle.loads(pickle.dumps(agent))]
)
def test_a_copy_acts_as_its_original_and_leaves_it_alone(kind, copied, loaded):
    """Both continue the running episode, with the same draws."""
    agent = loaded(kind)
    seen = observations(agent, 20)
    actions(agent, seen[:5], deterministic=False)
    other = copied(agent)
    for deterministic in (True, False):
        expected = actions(other, seen, deterministic)
        np.testing.assert_array_equal(actions(agent, seen, deterministic), expected)
    assert repr(other) == repr(agent)


def test_a_copy_has_the_weights_that_the_program_has_changed(loaded):
    agent = loaded("ppo")
    with torch.no_grad():
        for weight in agent.module.parameters():
            weight.add_(0.5)
    other = pickle.loads(pickle.dumps(agent))
    for one, two in zip(
        agent.module.parameters(), other.module.parameters(), strict=True
    ):
        torch.testing.assert_close(one, two, rtol=0, atol=0)
    with torch.no_grad():
        next(iter(other.module.parameters())).zero_()
    assert next(iter(agent.module.parameters())).any()


@pytest.mark.medium
def test_a_spawned_process_acts_as_the_program(loaded):
    agent = loaded("recurrent")
    seen = observations(agent, 10)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=acted_in_a_process, args=(agent, seen, results))
    process.start()
    there = results.get(timeout=120)
    process.join(60)
    here = [actions(agent, seen), actions(agent, seen, deterministic=False)]
    np.testing.assert_array_equal(there, here)


def episodes(agent, env, count, reset):
    """The actions of each episode, all over the same observations."""
    played = []
    for _ in range(count):
        obs, _ = env.reset(seed=0)
        if reset:
            agent.reset()
        taken, over = [], False
        while not over:
            taken.append(agent.act(obs))
            obs, _, terminated, truncated, _ = env.step(taken[-1])
            over = terminated or truncated
        played.append(np.array(taken).tolist())
    return played


@pytest.mark.parametrize("kind", ["recurrent", "stacked"])
def test_an_environment_of_the_agent_begins_its_episodes(kind, loaded):
    """The plain loop acts in every episode as in the first, and as with `reset`."""
    agent = loaded(kind)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():  # a policy whose actions differ from step to step
        for weight in agent.module.parameters():
            weight.normal_(0, 2, generator=generator)
    env = agent.make_env()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = episodes(agent, env, 2, reset=False)
    assert first == second == episodes(agent, env, 1, reset=True)[0]
    assert env.spec.id == "CartPole-v1"
    env.close()


def test_an_episode_that_ends_without_a_reset_is_warned_of_once(loaded):
    agent = loaded("recurrent")
    ended, begun = agent.make_env(), agent.make_env()
    begun.reset(seed=0)
    (plain,) = episodes(agent, ended, 1, reset=True)
    seen = observations(agent, 5)
    with pytest.warns(UserWarning, match=r"call reset\(\) of the agent") as caught:
        agent.act(seen[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.act(seen[1])
    assert caught[0].filename == __file__
    assert plain
    ended.close()
    begun.close()


def test_a_batch_is_not_reset_by_one_of_its_environments(loaded):
    agent = loaded("recurrent")
    seen = np.repeat(observations(agent, 1), 2, axis=0)
    env = agent.make_env()
    agent.act(seen)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="remembers its episodes"):
        agent.act(seen[0])
    env.close()


def test_an_environment_of_an_agent_without_a_memory_is_the_plain_one(loaded):
    assert type(loaded("ppo").make_env()).__module__ != "slm_lab.api.agent"


@pytest.mark.parametrize(
    ("value", "named"),
    [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf"), (1e39, "1e+39")],
)
@pytest.mark.parametrize("count", [None, 3])
def test_numbers_that_are_no_finite_float32_are_refused(value, named, count, loaded):
    agent = loaded("ppo")
    seen = np.zeros((4,) if count is None else (count, 4))
    seen[..., 2] = value
    with pytest.raises(
        ValueError,
        match=f"the value {named}, which (is no finite|float32 cannot hold)".replace(
            "+", r"\+"
        ),
    ):
        agent.act(seen)


def test_a_tensor_with_a_gradient_is_refused_and_one_without_is_taken(loaded):
    agent = loaded("ppo")
    seen = torch.zeros(4)
    assert agent.act(seen) == agent.act(seen.numpy())
    with pytest.raises(
        ValueError, match=r"the observation is no array: .*requires grad"
    ):
        agent.act(seen.requires_grad_())


@pytest.mark.parametrize("word", [torch.tensor([0, 0, 0]), None, "no", 1, np.zeros(2)])
def test_only_true_and_false_are_deterministic(word, loaded):
    with pytest.raises(ValueError, match=r"deterministic = .*: must be True or False"):
        loaded("ppo").act(np.zeros(4), deterministic=word)
    loaded("ppo").act(np.zeros(4), deterministic=np.bool_(True))
