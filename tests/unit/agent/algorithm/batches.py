"""Batches worked out by hand, and learners that take them."""

import torch

from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.batch import Rollout, Transitions, TransitionSource
from slm_lab.agent.build import build_agent
from slm_lab.env.make import make_env
from tests.support import parse, ppo, seeded

GAMMA = 0.9


def build(data, **options):
    """The agent of a spec, and its environments."""
    spec = parse(data)
    env = make_env(spec.env, 0)
    seeds = AgentSeeds(init=0, action=1, sampling=2)
    spaces = env.layout, env.action_space
    return build_agent(spec.agent, *spaces, env.num_envs, seeds, **options), env


def learner_of(data):
    return build(data)[0].learner


def agent_of(algorithm, memory, num_envs=2, **net):
    net = {
        "type": "MLPNet",
        "hid_layers": [8],
        "optim_spec": {"name": "SGD", "lr": 0.1},
        **net,
    }
    return build(
        ppo(
            agent__algorithm={"gamma": GAMMA, **algorithm},
            agent__memory=memory,
            agent__net=net,
            env__num_envs=num_envs,
        )
    )[0]


def dqn(name, **net):
    memory = {"name": "Replay", "batch_size": 4, "max_size": 100}
    return agent_of({"name": name}, memory, **net)


class OneBatch(TransitionSource):
    """Hands out the same batch, and keeps the errors it receives."""

    num_batches = 1
    num_stored = 10
    num_trained_on = 8

    def __init__(self, batch):
        self.batch = batch

    def sample(self, frame):
        return self.batch

    def update_priorities(self, index, error):
        self.index = index
        self.error = error


DISCRETE = torch.tensor([0, 1, 1, 0])
CONTINUOUS = torch.tensor([[0.1], [-0.7], [0.9], [0.0]])


def transitions(action=DISCRETE):
    """Of CartPole, or with CONTINUOUS actions of Pendulum."""
    obs_dim = 4
    if action is CONTINUOUS:
        obs_dim = 3
    generator = seeded(3)
    return Transitions(
        obs=torch.randn(4, obs_dim, generator=generator),
        action=action,
        log_prob=torch.tensor([-0.1, -0.7, -1.2, -0.4]),
        reward=torch.tensor([1.0, -1.0, 0.5, 2.0]),
        discount=torch.tensor([0.9, 0.81, 0.0, 0.9]),
        next_obs=torch.randn(4, obs_dim, generator=generator),
        weight=torch.tensor([1.0, 0.5, 0.25, 0.8]),
        index=torch.tensor([5, 6, 7, 8]),
    )


def rollout():
    """Three steps of two environments: one episode is terminated, one truncated."""
    generator = seeded(0)
    none = torch.zeros(3, 2)
    return Rollout(
        obs=torch.randn(3, 2, 4, generator=generator),
        action=torch.tensor([[0, 1], [1, 1], [0, 0]]),
        log_prob=none,
        value=none,
        reward=torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.5, 1.0]]),
        terminated=torch.tensor([[False, False], [True, False], [False, False]]),
        truncated=torch.tensor([[False, True], [False, False], [False, False]]),
        bootstrap_obs=torch.randn(3, 4, generator=generator),
        bootstrap_t=torch.tensor([0, 2, 2]),
        bootstrap_n=torch.tensor([1, 0, 1]),
        version=torch.zeros(3, dtype=torch.int64),
    )
