"""Periodic resets of weights that several workers share, taken in turn in this
process."""

import pytest
import torch

from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.hogwild import strategy as hogwild
from slm_lab.parallel.hogwild.strategy import GlobalState, HogwildStrategy
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.testing.play import Play
from tests.support import parse, soft

SPEC = parse(soft("CrossQ", agent__algorithm__reset_frequency=100))
"""Its critics have running statistics, too."""
WITH_TARGETS = parse(
    soft("SoftActorCritic", agent__algorithm__reset_frequency=100),
)
MODES = pytest.mark.parametrize("mode", ["shared", "synced", "replica"])
COUNT = 3


class Workers:
    """Workers of one training, each with an agent of its own that has learned."""

    def __init__(self, mode, spec=SPEC, count=COUNT):
        self.status_board = StatusBoard.allocate(CONTEXT, count)
        for worker in range(count):
            self.status_board.write(worker, phase=Phase.RUNNING)
        self.spec = spec
        prototype = Play(spec)
        self.state = GlobalState.of(mode, prototype.agent, prototype.env, count)
        prototype.env.close()
        self.agents = [self.joined(worker) for worker in range(count)]
        for agent in self.agents:
            agent.learn(60)

    def joined(self, worker, resume=None):
        """The agent of a worker that has just started; `resume` is a state to begin
        with."""
        play = Play(self.spec, seed=worker)
        for _ in range(16):
            play.step()
        if resume is not None:
            play.agent.learner.load_state_dict(resume)
        strategy = HogwildStrategy(self.state, self.status_board, worker)
        strategy.join(play.agent, play.env)
        play.agent.learner.weights_replaced()
        play.env.close()
        return play.agent

    def reset(self, worker, frame):
        """Whether the networks of a worker have begun anew at this frame."""
        learner = self.agents[worker].learner
        began = learner.resets.reset(learner.train_state, frame)
        if began:
            learner.weights_replaced()
        return began

    def global_state(self):
        """Copies of the weights, statistics and moments that all share."""
        return [
            tensor.clone()
            for shared in self.state.networks.values()
            for tensor in (shared.vector, shared.statistics, *shared.moments.values())
            if tensor.numel() > 0
        ]

    def is_global(self, worker):
        """Whether a worker has the global weights and statistics."""
        flats = self.agents[worker].learner.flats
        return all(
            torch.equal(flats[name].vector, shared.vector)
            and torch.equal(flats[name].statistics, shared.statistics)
            for name, shared in self.state.networks.items()
        )


def are_equal(one, other):
    return all(map(torch.equal, one, other))


@pytest.fixture
def workers(mode, monkeypatch):
    if mode == "replica":  # "shared" on another device, for which the CPU stands
        monkeypatch.setattr(hogwild, "is_on_cpu", lambda optimizer: False)
        mode = "shared"
    return Workers(mode)


@MODES
def test_only_the_first_worker_writes_the_weights_of_a_reset_and_once(workers):
    before = workers.global_state()
    places = [shared.vector.data_ptr() for shared in workers.state.networks.values()]
    assert not workers.reset(1, 101)
    assert are_equal(workers.global_state(), before)
    assert workers.reset(0, 104)
    anew = workers.global_state()
    assert not any(map(torch.equal, anew, before))
    assert workers.reset(1, 105)
    assert workers.reset(2, 105)
    assert not any(workers.reset(worker, 120) for worker in range(COUNT))
    assert are_equal(workers.global_state(), anew)
    assert all(map(workers.is_global, range(COUNT)))
    networks = workers.state.networks.values()
    assert [shared.vector.data_ptr() for shared in networks] == places
    for shared in networks:
        assert not any(moment.any() for moment in shared.moments.values())


@MODES
def test_the_weights_are_those_of_a_process_alone(workers, mode):
    workers.reset(0, 104)
    play = Play(SPEC)
    play.agent.learner.resets.reset(play.agent.learner.train_state, 104)
    assert workers.is_global(0)
    for name, flat in play.agent.learner.flats.items():
        assert torch.equal(workers.state.networks[name].vector, flat.vector)
        assert torch.equal(workers.state.networks[name].statistics, flat.statistics)
    play.env.close()


@MODES
def test_workers_go_on_from_the_steps_that_others_took_since_the_reset(workers):
    workers.reset(0, 104)
    workers.agents[0].learn(104)
    moved = workers.global_state()
    workers.reset(2, 108)
    assert are_equal(workers.global_state(), moved)
    assert workers.is_global(2)


@pytest.mark.parametrize("mode", ["shared", "synced"])
def test_target_networks_of_all_workers_begin_anew(mode):
    workers = Workers(mode, WITH_TARGETS)
    for worker in range(COUNT):
        workers.reset(worker, 104)
    anew = workers.state.networks["critic"].vector
    for agent in workers.agents:
        target = agent.learner.target_networks["target_network"].target
        assert torch.equal(target.vector, anew)


@MODES
@pytest.mark.parametrize("phase", [Phase.DONE, Phase.FAILED, Phase.STOPPED])
def test_the_next_worker_leads_when_the_first_has_ended_for_good(workers, phase):
    assert not workers.reset(1, 101)
    workers.status_board.write(0, phase=Phase.WAITING)  # it is replaced
    assert not workers.reset(1, 102)
    workers.status_board.write(0, phase=phase)
    assert not workers.reset(2, 103)
    assert workers.reset(1, 103)
    assert workers.reset(2, 104)


@MODES
def test_a_replaced_worker_repeats_no_reset(workers):
    old = workers.agents[0].learner.state_dict()
    workers.reset(0, 104)
    workers.agents[0].learn(108)
    anew = workers.global_state()
    for resume in (None, old):
        workers.agents[0] = workers.joined(0, resume)
        assert workers.reset(0, 108)
        assert are_equal(workers.global_state(), anew)
        assert workers.is_global(0)
        assert not workers.reset(0, 112)


def test_the_count_of_resets_is_part_of_the_checkpoint():
    workers = Workers("shared")
    workers.reset(0, 304)
    saved = workers.state.state_dict()
    for name, network in workers.state.networks.items():
        rule = {key: moment.clone() for key, moment in network.moments.items()}
        saved["agent"]["learner"]["train_state"][name]["rule"] = rule
    saved["strategy"]["updates"] = dict.fromkeys(workers.state.networks, 5)
    other = Workers("shared").state
    other.load(saved)
    assert other.resets.tolist() == [3]
    del saved["strategy"]["resets"]
    other.load(saved)
    assert other.resets.tolist() == [0]
