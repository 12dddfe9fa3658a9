"""Self-imitation learning (arXiv:1806.05635), on top of ActorCritic or of PPO."""

from collections.abc import Mapping
from typing import final

from torch import Tensor
from typing_extensions import override

from slm_lab.agent.algorithm.actor_critic import ActorCritic
from slm_lab.agent.algorithm.algorithm import AgentParts, BuildContext, Learner
from slm_lab.agent.algorithm.ppo import PPO
from slm_lab.agent.algorithm.report import Report, mean_report, number
from slm_lab.agent.batch import ImitationBatch, Transitions, describe_on_error
from slm_lab.agent.memory.memory import ReplayConfig, TrainingSchedule
from slm_lab.core.types import StateDict
from slm_lab.spec.schema.policy_gradient import PPOSILSpec, SILSpec


class SelfImitation(Learner[ImitationBatch]):
    """Takes steps towards what went better than expected, after each training event of
    another algorithm. The past is sampled `training_batch_iter` times, with
    `training_iter` gradient steps each."""

    inner_kind: type[ActorCritic | PPO]
    """The algorithm that learns from the newest steps."""
    spec_kind: type[SILSpec | PPOSILSpec]

    def __init__(self, spec: SILSpec | PPOSILSpec, inner: ActorCritic | PPO) -> None:
        super().__init__(inner.train_state)
        self.spec = spec
        self.inner = inner

    @classmethod
    def build(cls, context: BuildContext) -> AgentParts:
        """The inner algorithm with imitation around its learner."""
        spec = context.algorithm(cls.spec_kind)
        parts = cls.inner_kind.build(context)
        assert isinstance(parts.learner, ActorCritic | PPO)
        config = ReplayConfig(
            schedule=TrainingSchedule(1, 0),
            gamma=spec.gamma,
            num_steps=1,
            seed=context.seeds.sampling,
        )
        return parts._replace(learner=cls(spec, parts.learner), replay=config)

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        return (
            *self.inner.metric_names,
            "sil_policy_loss",
            "sil_value_loss",
            "sil_share",
        )

    @override
    def take_numbers(self, numbers: Mapping[str, float]) -> None:
        self.spec = self.spec.with_numbers(numbers)
        self.inner.take_numbers(numbers)

    @override
    def learn(self, batch: ImitationBatch, frame: int) -> Report:
        """The inner training event; then its rollout joins the past, which is learned
        from."""
        self.inner.opt_step = self.opt_step
        self.inner.version = self.version
        with describe_on_error(batch.rollout):
            report = dict(self.inner.learn(batch.rollout, frame))
            self.train_state.check()
        batch.past.add(batch.rollout)
        if self.train_state.group.all_true(batch.past.num_stored > 0):
            report |= self._imitate(batch, frame)
        self.opt_step = self.inner.opt_step
        self.version = self.inner.version
        return report

    def _imitate(self, batch: ImitationBatch, frame: int) -> Report:
        reports = []
        self.train_state.set_frame(frame)  # a second event, on batches of another size
        self.inner.network.train(True)
        for _ in range(self.spec.training_batch_iter):
            samples = batch.past.sample(frame)
            with describe_on_error(samples):
                for _ in range(self.spec.training_iter):
                    report, advantage = self._update(samples)
                    reports.append(report)
            batch.past.update_priorities(samples.index, advantage.clamp(min=0.0))
        self.inner.network.train(False)
        return mean_report(reports)

    def _update(self, batch: Transitions) -> tuple[Report, Tensor]:
        """One step on c₁ L^policy + c₂ L^value, eq. 1; and R − V, (B,). The policy's
        term is −E[w log π(a|s) (R − V)₊], eq. 2."""
        network = self.inner.network
        batch = batch.to(network.device)
        returns = batch.reward
        batch_pass = self.inner.evaluate(batch.obs, batch.action)
        advantage = returns - network.transform.decode(batch_pass.value)
        policy_loss = batch_pass.policy_gradient(advantage.clamp(min=0.0), batch.weight)
        value_loss = batch_pass.imitation_value_loss(
            network.transform.encode(returns), batch.weight
        )
        losses = batch_pass.losses(
            self.spec.sil_policy_loss_coef, self.spec.sil_val_loss_coef
        )
        network.minimise(*losses)
        self.inner.opt_step += 1
        report = {
            "sil_policy_loss": policy_loss,
            "sil_value_loss": value_loss,
            "sil_share": number((advantage > 0).float().mean()),
        }
        return report, advantage

    @override
    def own_state(self) -> StateDict:
        return {**super().own_state(), "inner": self.inner.own_state()}

    @override
    def load_own_state(self, state: StateDict) -> None:
        super().load_own_state(state)
        self.inner.load_own_state(state["inner"])


@final
class SIL(SelfImitation):
    """Self-imitation on top of ActorCritic."""

    inner_kind = ActorCritic
    spec_kind = SILSpec


@final
class PPOSIL(SelfImitation):
    """Self-imitation on top of PPO."""

    inner_kind = PPO
    spec_kind = PPOSILSpec
