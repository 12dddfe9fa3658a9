"""The contract of an algorithm: how its agents act, learn, repeat, resume and train in
modes."""

import copy
import math
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import pytest
import torch

from slm_lab.agent.algorithm.dual import LogNumbers
from slm_lab.core.errors import NonFiniteLossError
from slm_lab.core.types import Array, Column
from slm_lab.env.vector_env import HostEnv, VectorEnv
from slm_lab.parallel.actor_learner.source import PipelineStats
from slm_lab.parallel.hogwild.strategy import HogwildStrategy
from slm_lab.session.session import Session
from slm_lab.testing.algorithm_case import AlgorithmCase, ModeWord
from slm_lab.testing.contract import Contract
from slm_lab.testing.outside import (
    Game,
    deviation_of_file,
    evaluation_env,
    loaded_agent,
    open_onnx,
    outside,
    small_spec,
    untrained,
)
from slm_lab.testing.play import Play, check_batch, load_whole, same, saved, whole
from slm_lab.testing.sessions import (
    WholeRun,
    copy_kept,
    difference,
    difference_of_vectors,
    global_generators,
    poison_global_generators,
    rows,
    run_ranks,
    run_session,
    stop_at,
    vectors,
    whole_folder,
    whole_run,
)

IN_EVERY_MODE = pytest.mark.parametrize("mode", get_args(ModeWord))
COLUMNS_OF_MODES = (*HogwildStrategy.columns, *PipelineStats.columns)
"""The columns that only workers of a mode have."""


class AlgorithmContract(Contract):
    """The tests that every algorithm passes. `cases` are `AlgorithmCase`s: one for each
    kind of action space, and for each key that changes what it does."""

    cases: ClassVar[dict[str, AlgorithmCase]]

    @pytest.fixture
    def play(self, case: AlgorithmCase) -> Iterator[Play]:
        """An agent of the case in its environments."""
        play = Play(case.spec)
        yield play
        play.env.close()

    @pytest.fixture
    def uninterrupted(
        self, case: AlgorithmCase, tmp_path_factory: pytest.TempPathFactory
    ) -> WholeRun:
        """The whole training of the case, which is made once."""
        return whole_run(tmp_path_factory, case.spec)

    def require_learning(self, case: AlgorithmCase) -> None:
        """Skips the test for an agent that learns nothing."""
        if not case.learns:
            pytest.skip(f"{case.name} learns nothing")

    def require_mode(self, case: AlgorithmCase, mode: ModeWord) -> None:
        """Skips the test where the spec check refuses the mode."""
        refusal = case.refusal(mode)
        if refusal is not None:
            pytest.skip(f"the spec check refuses {mode}: {refusal}")

    # Acting

    def test_its_actions_are_those_of_the_action_space(
        self, case: AlgorithmCase, play: Play
    ) -> None:
        env = play.env
        for _ in range(20):
            act = play.agent.act(play.obs, play.frame)
            shape = (env.num_envs, *play.action_shape)
            assert act.action.shape == shape, (
                f"{case.name} acts with arrays {act.action.shape}: return {shape}, one "
                "action for each environment"
            )
            assert act.action.dtype == env.action_space.dtype, (
                f"{case.name} acts with {act.action.dtype}: return "
                f"{env.action_space.dtype}, the type of the action space"
            )
            for name in ("log_prob", "value"):
                numbers = getattr(act, name)
                right = numbers.shape == shape[:1] and numbers.dtype == np.float32
                assert right, (
                    f"Act.{name} is {numbers.dtype} {numbers.shape}: return float32 "
                    f"{shape[:1]}"
                )
            assert np.isfinite(act.action).all(), (
                f"{case.name} acts with NaN or infinite numbers: bound what the "
                "network puts out"
            )
            assert np.isfinite(act.log_prob).all() == case.learns, (
                "Act.log_prob has NaN or infinite numbers: return ln π(a|s) of the "
                "drawn actions"
            )
            known = np.isfinite(act.value).all() or np.isnan(act.value).all()
            assert known, "Act.value is partly NaN: return V(s), or NaN everywhere"
            assert act.version == 0, (
                "Act.version of an untrained agent is not 0: return Learner.version"
            )
            self.check_inside(case, env, act.action)
            play.obs = env.step(act.action).obs

    def check_inside(self, case: AlgorithmCase, env: VectorEnv, actions: Array) -> None:
        """Checks that actions lie in the action space, where the case says so."""
        if case.bounded:
            assert all(action in env.action_space for action in actions), (
                f"{case.name} draws actions outside of {env.action_space}: use a "
                "distribution with these bounds, or say bounded=False"
            )

    def test_acting_greedily_is_repeatable_and_draws_nothing(
        self, case: AlgorithmCase, play: Play
    ) -> None:
        self.require_learning(case)
        actor = play.agent.actor
        obs = play.obs
        drawn = actor.act(obs, 0).action
        before = saved(actor.state_dict())
        global_before = global_generators()
        greedy = actor.act_greedily(obs)
        recurrent = before["recurrent_state"]
        after = {**actor.state_dict(), "recurrent_state": recurrent}
        assert same(after, before), (
            "act_greedily changed the state of the actor: it must draw nothing and "
            "count nothing"
        )
        actor.load_state_dict(before)
        assert np.array_equal(actor.act_greedily(obs), greedy), (
            "act_greedily returned other actions for the same observations: return "
            "the most likely actions"
        )
        assert global_generators() == global_before, (
            "act_greedily drew from a global generator: it must draw nothing"
        )
        assert (greedy.shape, greedy.dtype) == (drawn.shape, drawn.dtype), (
            f"act_greedily returned {greedy.dtype} {greedy.shape}, act {drawn.dtype} "
            f"{drawn.shape}: return arrays of the same kind"
        )
        self.check_inside(case, play.env, greedy)
        if recurrent is None:
            assert actor.act_greedily(obs[:1]).shape == greedy[:1].shape, (
                "act_greedily needs as many observations as there are environments: "
                "take any number"
            )

    # Learning

    def test_it_learns_without_looking_ahead(self, case: AlgorithmCase) -> None:
        """A γ of 0, as for bandits."""
        self.require_learning(case)
        data = copy.deepcopy(case.data)
        data["agent"]["algorithm"]["gamma"] = 0
        play = Play(AlgorithmCase(data, case.bounded, case.max_frame).spec)
        with closing(play.env):
            reports = list(islice(self.reports(case, play), 3))
        self.check_events(case, len(reports))
        assert all(math.isfinite(report["loss"]) for report in reports), (
            f"the loss of {case.name} is NaN or infinite with a gamma of 0: never "
            "divide by gamma"
        )

    def reports(self, case: AlgorithmCase, play: Play) -> Iterator[dict[str, float]]:
        """The reports of all training events, of finite losses."""
        try:
            yield from play.reports(case.steps)
        except NonFiniteLossError as error:
            raise AssertionError(
                f"the loss of {case.name} became NaN or infinite: look for a division, "
                f"a logarithm or a root of zero in it; {error}"
            ) from error

    def check_events(self, case: AlgorithmCase, count: int) -> None:
        """Checks that there were three training events or more."""
        assert count > 2, (
            f"{case.name} learned {count} times in {case.max_frame} frames: give the "
            "case more max_frame, or its spec shorter rollouts"
        )

    def test_learning_changes_every_parameter_and_reports_what_it_promises(
        self, case: AlgorithmCase, play: Play, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.require_learning(case)
        learner = play.agent.learner
        learn = learner.learn

        def checked(batch: Any, frame: int) -> Any:
            check_batch(batch, play)
            return learn(batch, frame)

        monkeypatch.setattr(learner, "learn", checked)
        before = {
            name: [parameter.detach().clone() for parameter in flat.views]
            for name, flat in learner.flats.items()
        }
        names = learner.metric_names
        promised = {m.name if isinstance(m, Column) else m for m in names}
        versions = [learner.version]
        steps = [learner.opt_step]
        for report in self.reports(case, play):
            missing = sorted((promised | {"loss", "grad_norm", "lr"}) - report.keys())
            assert not missing, (
                f"the report of {case.name} lacks {missing}: return what metric_names "
                "promises, and what self.stepped returns"
            )
            wrong = [k for k, number in report.items() if not math.isfinite(number)]
            assert not wrong, (
                f"{wrong} of {case.name} are NaN or infinite: look for a division, a "
                "logarithm or a root of zero"
            )
            assert play.agent.actor.version == learner.version, (
                "Actor.version is not that of the learner after a training event"
            )
            versions.append(learner.version)
            steps.append(learner.opt_step)
        self.check_events(case, len(versions) - 1)
        for name, counts in (("version", versions), ("opt_step", steps)):
            assert counts == sorted(set(counts)), (
                f"Learner.{name} did not grow in a training event: return "
                "self.stepped(step) in the report"
            )
        for name, flat in learner.flats.items():
            flat.check()
            for parameter, old in zip(flat.views, before[name], strict=True):
                assert not torch.equal(parameter, old), (
                    f"a parameter {tuple(old.shape)} of the network {name} never "
                    "moved: let the loss depend on it"
                )

    def test_saved_and_loaded_it_acts_and_learns_as_before(
        self, case: AlgorithmCase, play: Play
    ) -> None:
        """Saved in the middle of a run, loaded into an agent with other weights and
        generators."""
        half = case.steps // 2
        list(play.reports(half + 3))
        twin = play.fresh_agent(seed=7)
        if case.learns:
            assert not same(whole(twin), whole(play.agent)), (
                "agents of two seeds are equal: build must use the seeds of its context"
            )
        load_whole(twin, saved(whole(play.agent)))
        assert same(whole(twin), whole(play.agent)), (
            "the loaded agent has another state than the saved one: load_state_dict "
            "must restore all that state_dict returns"
        )
        fix = (
            "saved and loaded, {} of " + case.name + " differ: state_dict (own_state "
            "of a Learner) lacks something that later updates depend on, such as a "
            "generator or running statistics"
        )
        events = 0
        for _ in range(half):
            twin.act(play.obs, play.frame)
            play.step(twin)
            states = (play.agent.actor.state_dict(), twin.actor.state_dict())
            assert same(*states), fix.format("actors")
            acts = [agent.act(play.obs, play.frame) for agent in (play.agent, twin)]
            assert same(*acts), fix.format("the actions")
            report = play.agent.learn(play.frame)
            assert same(report, twin.learn(play.frame)), fix.format("the reports")
            events += report is not None
        few = f"{case.name} did not learn in half of its frames: give max_frame more"
        assert events > 0 or not case.learns, few
        assert same(whole(twin), whole(play.agent)), fix.format("the states")

    def test_episodes_that_are_broken_off_leave_something_to_learn_from(
        self, case: AlgorithmCase, play: Play
    ) -> None:
        """A resume breaks episodes off if it cannot restore the environments."""
        list(play.reports(7))
        play.agent.break_off(play.obs)
        play.obs = play.env.reset()
        events = sum(1 for _ in play.reports(case.steps))
        assert (events > 0) == case.learns, (
            f"{case.name} does not learn after its episodes were broken off: take "
            "batches whose last steps are truncated"
        )

    def test_agents_are_alike_under_one_seed_and_differ_under_another(
        self, case: AlgorithmCase, play: Play
    ) -> None:
        state = play.agent.state_dict()
        assert same(play.fresh_agent(0).state_dict(), state), (
            "two agents of one seed differ: draw from generators seeded by "
            "context.seeds only"
        )
        other = play.fresh_agent(1)
        fix = "agents of two seeds are alike: seed their generators by context.seeds"
        assert not same(other.state_dict(), state), fix
        for name, flat in other.learner.flats.items():
            # temperatures and multipliers begin at a value, not by chance
            if flat.vector.numel() == 1 or isinstance(flat.module, LogNumbers):
                continue
            vector = play.agent.learner.flats[name].vector
            assert not torch.equal(flat.vector, vector), fix

    # Whole trainings

    def test_a_resumed_run_equals_the_uninterrupted_one(
        self, case: AlgorithmCase, uninterrupted: WholeRun, tmp_path: Path
    ) -> None:
        """The run is stopped after two rows, in the middle of a rollout and of
        episodes. It resumes with other states of the global generators."""
        assert not uninterrupted.drew_from_global_generators, (
            f"a training of {case.name} drew from a global generator of Python, NumPy "
            "or torch: draw from generators seeded by context.seeds"
        )
        assert len(uninterrupted.rows) == 4, (
            f"a training wrote {len(uninterrupted.rows)} rows instead of 4: let its "
            "max_frame be divisible by 4 × num_envs"
        )
        half = case.max_frame // 2
        poison_global_generators(1)
        stopped = run_session(case.spec, tmp_path, on_row=stop_at(half))
        self.check_stop(stopped, half, case.max_frame)
        assert stopped.env.exact_state, (
            f"the state of {case.spec.env.name} cannot be saved exactly: choose an "
            "environment of Gymnasium for the case, such as CartPole-v1"
        )
        poison_global_generators(2)
        resumed = run_session(case.spec, tmp_path, resume=True)
        differing = difference(resumed, uninterrupted)
        assert not differing, (
            f"a resumed run of {case.name} differs from the uninterrupted one "
            f"{differing}; state_dict (own_state of a Learner) must hold all that "
            "later updates depend on"
        )

    def test_a_fork_repeats_the_run_that_it_leaves(
        self,
        case: AlgorithmCase,
        uninterrupted: WholeRun,
        tmp_path: Path,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        """The fork begins from a checkpoint that was kept at half of the frames."""
        parent = whole_folder(tmp_path_factory, case.spec)
        frame = copy_kept(case.spec, parent, tmp_path)
        assert case.max_frame // 2 <= frame < case.max_frame, (
            f"a checkpoint was kept at frame {frame} of {case.max_frame}: let its "
            "max_frame be divisible by 2 × num_envs"
        )
        poison_global_generators(3)
        fork = run_session(case.spec, tmp_path, resume=True)
        differing = difference(fork, uninterrupted)
        assert not differing, (
            f"a fork of {case.name} at frame {frame} differs from the run {differing}; "
            "state_dict must hold all that later updates depend on, and change none of "
            "the files of an earlier checkpoint"
        )

    def test_evaluations_change_nothing(
        self, case: AlgorithmCase, uninterrupted: WholeRun, tmp_path: Path
    ) -> None:
        meta = {"rigorous_eval": 2, "eval_frequency": case.max_frame * 3 // 8}
        watched = run_session(case.changed({}, meta), tmp_path)
        assert watched.paths.eval_rows.exists(), (
            "no evaluation was made: give the spec more frames"
        )
        differing = difference(watched, uninterrupted)
        assert not differing, (
            f"a training of {case.name} differs {differing} if it is evaluated on the "
            "way: act_greedily must leave networks and generators alone"
        )

    def check_stop(self, stopped: Session, first: int, end: int) -> None:
        """Checks that a training was stopped at the frame `first`, or soon after."""
        frame = stopped.clock.frame
        assert first <= frame < end, (
            f"a stop at frame {first} took effect at frame {frame} of {end}: give the "
            "case more max_frame, or its spec shorter rollouts"
        )

    # Modes of parallel training

    @IN_EVERY_MODE
    def test_one_worker_of_a_mode_equals_a_single_process(
        self,
        case: AlgorithmCase,
        mode: ModeWord,
        tmp_path_factory: pytest.TempPathFactory,
        tmp_path: Path,
    ) -> None:
        self.require_mode(case, mode)
        if mode == "actor_learner" and case.agents_leave:
            pytest.skip("an unroll has not always as many frames")
        spec = case.in_mode(mode)
        worker = case.train(mode, spec, tmp_path)
        alone = spec
        if mode == "actor_learner":
            alone = case.on_whole_rollouts()
        expected = whole_run(tmp_path_factory, alone)
        differing = difference(worker, expected, without=COLUMNS_OF_MODES)
        assert not differing, (
            f"one worker of {mode} trains {case.name} otherwise than a single process,"
            f" {differing}: take each gradient step by network.step or Optimizer.step"
        )
        self.check_gradient_steps(case, worker)

    def check_gradient_steps(self, case: AlgorithmCase, worker: Session) -> None:
        """Checks that a training took a gradient step."""
        assert worker.agent.learner.opt_step > 0 or not case.learns, (
            f"{case.name} took no gradient step in its training: give max_frame more"
        )

    @IN_EVERY_MODE
    def test_resumed_workers_equal_uninterrupted_ones(
        self, case: AlgorithmCase, mode: ModeWord, tmp_path: Path
    ) -> None:
        """Two actors, two ranks, or one worker: others run in no fixed order."""
        self.require_mode(case, mode)
        if mode == "all_reduce":
            self.check_resumed_ranks(case, tmp_path)
            return
        spec = case.in_mode(mode)
        if mode == "actor_learner":
            spec = case.played_in_turn(2, publish_frequency=2, unroll_length=8)
        half = spec.env.max_frame // 2
        uncut = case.train(mode, spec, tmp_path / "whole")
        stopped = case.train(mode, spec, tmp_path / "cut", on_row=stop_at(half))
        self.check_stop(stopped, half, spec.env.max_frame)
        resumed = case.train(mode, spec, tmp_path / "cut", resume=True)
        differing = difference(resumed, uncut, without=COLUMNS_OF_MODES)
        assert not differing, self.resumed_otherwise(case, mode, differing)

    def check_resumed_ranks(self, case: AlgorithmCase, folder: Path) -> None:
        """Resumed ranks, too, end as two ranks that were never stopped."""
        spec = case.with_budget(case.max_frame * 3 // 2)
        uncut, _ = run_ranks(spec, folder / "whole", 2)
        half = rows(uncut)["frame"].iloc[len(rows(uncut)) // 2]
        stopped, _ = run_ranks(spec, folder / "cut", 2, on_row=stop_at(half))
        self.check_stop(stopped, 0, uncut.clock.frame)
        resumed, other = run_ranks(spec, folder / "cut", 2, resume=True)
        differing = difference(resumed, uncut)
        assert not differing, self.resumed_otherwise(case, "all_reduce", differing)
        differing = difference_of_vectors(vectors(other), vectors(uncut))
        assert not differing, self.resumed_otherwise(case, "all_reduce", differing)

    def resumed_otherwise(
        self, case: AlgorithmCase, mode: ModeWord, differing: str
    ) -> str:
        """The message about a resume that is no continuation."""
        return (
            f"resumed workers of {mode} train {case.name} otherwise than uninterrupted "
            f"ones, {differing}: state_dict must hold all that later updates depend on"
        )

    def test_two_ranks_end_with_equal_weights_and_can_be_repeated(
        self, case: AlgorithmCase, tmp_path: Path
    ) -> None:
        self.require_mode(case, "all_reduce")
        spec = case.with_budget(case.max_frame * 3 // 2)
        first, second = run_ranks(spec, tmp_path / "one", 2)
        differing = difference_of_vectors(vectors(first), vectors(second))
        assert not differing, (
            f"the ranks of {case.name} end with other weights in {differing}: change "
            "weights in gradient steps only"
        )
        again, _ = run_ranks(spec, tmp_path / "other", 2)
        differing = difference(again, first)
        assert not differing, (
            f"repeated ranks of {case.name} differ {differing}: draw from generators "
            "seeded by context.seeds only"
        )
        assert rows(first)["total_frame"].iloc[-1] >= spec.env.max_frame, (
            "the ranks ended before their budget"
        )
        assert not second.paths.rows.exists(), (
            "the second rank wrote rows; only the first may"
        )

    # Outside of a training

    def test_a_loaded_agent_acts_as_an_evaluation_does(
        self, case: AlgorithmCase
    ) -> None:
        self.require_learning(case)
        if case.agents_leave:
            pytest.skip("one environment of its own has one agent")
        spec = small_spec(case.spec)
        taken: list[Any] = []
        with closing(evaluation_env(spec)) as vector:
            assert isinstance(vector, HostEnv)
            inside = untrained(spec, vector)
            agent = outside(spec, inside.learner, vector.statistics)
            step_raw = vector.raw.step

            def noted(action: Any) -> Any:
                taken.append(copy.deepcopy(action))
                return step_raw(action)

            vector.raw.step = noted  # type: ignore[method-assign]
            obs = vector.reset()
            fix = (
                f"a loaded {case.name} acts otherwise than in an evaluation: "
                "act_greedily must depend on networks and observations alone"
            )
            outside_space = f"a loaded {case.name} acts outside of the action space"
            with closing(Game(agent)) as game:
                for _ in range(60):
                    result = vector.step(inside.actor.act_greedily(obs))
                    inside.actor.end_episodes(result.terminated | result.truncated)
                    obs = result.obs
                    actions = agent.act(game.obs, mask=game.mask)
                    assert same(actions, taken[-1]), fix
                    singles = game.singles(actions)
                    assert all(map(agent.action_space.contains, singles)), outside_space
                    done = game.step(actions)
                    expected = result.terminated | result.truncated
                    assert np.array_equal(done, expected), fix
                    agent.reset(done)
                agent.reset()
                single = agent.act(game.raw[0], mask=game.first_mask)
                assert agent.action_space.contains(single), outside_space
                agent.reset()
                drawn = agent.act(
                    game.raw[0], deterministic=False, mask=game.first_mask
                )
                assert agent.action_space.contains(drawn), outside_space

    def test_an_exported_policy_acts_as_the_agent(
        self, case: AlgorithmCase, tmp_path: Path
    ) -> None:
        pytest.importorskip("onnxruntime", reason="needs the extra export")
        pytest.importorskip("onnxscript", reason="needs the extra export")
        self.require_learning(case)
        agent = loaded_agent(small_spec(case.spec))
        if agent._actor.module is None:
            pytest.skip(f"{case.name} has no Actor.module to export")
        path = tmp_path / "policy.onnx"
        deviation = deviation_of_file(agent, path, open_onnx)
        assert not deviation, (
            f"an exported policy of {case.name} acts otherwise, {deviation}: compute "
            "the parameters of the distribution in Actor.module alone"
        )
        assert [file.name for file in tmp_path.iterdir()] == [path.name], "one file"
