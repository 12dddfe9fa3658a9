"""Agents whose environments are on the device of their networks."""

from contextlib import closing

import pytest
import torch

from slm_lab.agent import device
from slm_lab.agent.algorithm import tensor_actor
from slm_lab.agent.algorithm.tensor_actor import TensorActor
from slm_lab.agent.distribution import distributions
from slm_lab.agent.from_spec import net, networks
from slm_lab.env.device_env import STEPS_PER_READ, DeviceEnv, make_device_env
from slm_lab.env.simulators import torch_envs
from slm_lab.env.vector_env import HostEnv
from slm_lab.session import build
from slm_lab.session.experience import observed
from slm_lab.session.seeding import session_seeds
from slm_lab.testing.sessions import assert_same_run, stop_at
from tests.contract.fake_gpu import GPU, FakeGPU
from tests.support import actor_critic, parse, ppo, q_learning, rows, run_session

BATCH = {"name": "CartPole-v1", "backend": "torch", "num_envs": 4, "max_frame": 4000}
BOX = {**BATCH, "name": "Pendulum-v1", "max_t": 20}


def spec_of(make, **changes):
    return parse(make(env=BATCH, **changes))


@pytest.fixture
def gpu(monkeypatch):
    """Networks and environments are on the fake GPU, which has no generator."""
    for module in (device, networks, net, build):
        monkeypatch.setattr(module, "resolve_device", lambda gpu: GPU)
    monkeypatch.setattr(tensor_actor, "device_generator", lambda device, seed: None)
    monkeypatch.setattr(torch_envs, "seeded_generator", lambda device, seed: None)
    monkeypatch.setattr(
        distributions, "standard_normal", lambda like, _: torch.randn_like(like)
    )
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with FakeGPU() as mode:
            yield mode
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.fixture
def on_cpu(monkeypatch):
    """A CPU is taken for the device of the environments."""

    def make(spec, env_spec, seed):
        return make_device_env(env_spec, seed, "cpu")

    monkeypatch.setattr(build, "_env_on_device", make)


def made(spec):
    return build.env_and_agent(spec, session_seeds(0, 0, 0))


def play(env, agent):
    """One vector step."""
    obs = env.obs
    act = agent.act(obs, 0)
    step = env.step(act.action)
    agent.observe(observed(obs, act, step))
    return step


@pytest.mark.medium
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("env", [BATCH, BOX], ids=["numbers", "boxes"])
@pytest.mark.parametrize("make", [ppo, actor_critic])
def test_no_step_copies_anything_to_the_host_or_from_it(gpu, make, env, shared):
    spec = parse(make(env=env, agent__net__shared=shared))
    vector, agent = made(spec)
    assert isinstance(vector, DeviceEnv)
    with closing(vector):
        vector.reset()
        events = steps = 0
        while events < 3:
            before = gpu.waits, gpu.copies
            play(vector, agent)
            steps += 1
            is_read = steps % STEPS_PER_READ == 0
            assert gpu.waits - before[0] == is_read
            assert gpu.copies == before[1]
            if agent.is_due:
                assert agent.learn(0) is not None
                events += 1


def test_a_training_event_waits_at_most_once_more_than_on_steps_from_the_host(gpu):
    def waits_of_an_event(**backend):
        spec = parse(ppo(env={**BATCH, **backend}))
        vector, agent = made(spec)
        vector.reset()
        while not agent.is_due:
            play(vector, agent)
        before = gpu.waits
        agent.learn(0)
        return gpu.waits - before

    # once more for the numbers of which returns are made
    assert waits_of_an_event() <= waits_of_an_event(backend="gymnasium") + 1


@pytest.mark.parametrize(
    "data",
    [
        ppo(env={**BATCH, "normalize_obs": True}),
        ppo(env={**BATCH, "backend": "gymnasium"}),
        ppo(env=BATCH, agent__algorithm__action_policy="random"),
        q_learning("DQN", env=BATCH),
    ],
    ids=["normalised", "gymnasium", "random", "replay"],
)
def test_what_needs_the_host_gets_arrays(gpu, data):
    vector, agent = made(parse(data))
    with closing(vector):
        assert isinstance(vector, HostEnv)
        assert not isinstance(agent.actor, TensorActor)


def test_on_a_cpu_steps_are_arrays_which_are_faster_there():
    vector, agent = made(spec_of(ppo))
    with closing(vector):
        assert isinstance(vector, HostEnv)
        assert not isinstance(agent.actor, TensorActor)


@pytest.mark.medium
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("make", [ppo, actor_critic])
def test_a_resumed_session_equals_one_that_was_not_stopped(make, tmp_path):
    spec = spec_of(make)
    whole = run_session(spec, tmp_path / "whole")
    assert isinstance(whole.env, DeviceEnv)
    run_session(spec, tmp_path / "parts", on_row=stop_at(1500))
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert_same_run(resumed, whole)


@pytest.mark.medium
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.slow
def test_ppo_learns_from_steps_on_its_device(tmp_path):
    keys = {
        "time_horizon": 32,
        "minibatch_size": 256,
        "training_epoch": 10,
        "gamma": 0.98,
        "lam": 0.8,
    }
    spec = parse(
        ppo(
            env={**BATCH, "num_envs": 8, "max_frame": 40_000},
            **{f"agent__algorithm__{key}": value for key, value in keys.items()},
            agent__net__hid_layers=[64, 64],
            meta__log_frequency=2000,
            meta__save_interval=1000,
        )
    )
    session = run_session(spec, tmp_path)
    assert isinstance(session.agent.actor, TensorActor)
    assert rows(session)["final_return"].iloc[-1] > 150.0


@pytest.mark.usefixtures("on_cpu")
def test_a_run_from_a_device_resumes_on_the_host(tmp_path, monkeypatch):
    spec = spec_of(ppo)
    run_session(spec, tmp_path, on_row=stop_at(1500))
    monkeypatch.setattr(build, "_env_on_device", lambda *_: None)
    resumed = run_session(spec, tmp_path, resume=True)
    assert isinstance(resumed.env, HostEnv)
    assert resumed.clock.frame == 4000
