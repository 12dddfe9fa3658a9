"""Problems of the learning of one Session that its rows show.

The thresholds are rules of thumb. A finding needs a clear case, because a false alarm
costs trust.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from slm_lab.core.recorded import value_at
from slm_lab.core.text import significant as text
from slm_lab.doctor.finding import Finding, Option, higher, lower, set_to
from slm_lab.doctor.history import SessionHistory, median

Symptom: TypeAlias = Callable[[SessionHistory], Iterator[Finding]]
"""Yields a finding if the Session has the illness."""

FEW = 8
SEVERAL = 20
"""The rows with values that a judgement of a trend needs, and a judgement of
returns."""
SEVERAL_EPISODES = 3
LONG_EPISODE = 10_000
"""An episode should end in the steps of so many episodes of random actions. It should
end in so many steps where their length is unknown."""
SHORT_SIGHT = 5
LONG_SIGHT = 100
"""The steps that a shortsighted agent looks ahead, and the steps that an agent with the
usual γ does."""
RATES = (
    "agent.net.optim_spec.lr",
    "agent.net.actor_optim_spec.lr",
    "agent.net.critic_optim_spec.lr",
    "agent.critic_net.optim_spec.lr",
)
USUAL_RATE = 1e-3
LOWER_LR = lower(*RATES, by=(10, 100), most=USUAL_RATE)
RAISE_LR = higher(*RATES, by=(10, 100), least=USUAL_RATE)
CLIP = "agent.net.clip_grad_val"
FEWER_EPOCHS = lower("agent.algorithm.training_epoch", by=(4,))
ENTROPY = "agent.algorithm.entropy_coef_spec.start_val"
TARGET_ENTROPY = "agent.algorithm.target_entropy"
FEWER = lower("meta.max_session", by=(2,))
MORE = higher("meta.max_session", by=(2,))
MORE_FRAMES = (
    higher("agent.algorithm.time_horizon", by=(4,)),
    higher("agent.algorithm.training_frequency", by=(4,)),
)
USUAL_POLYAK = 0.005
USUAL_GAMMA = 0.99
WARM_UP = 1 / 20
"""The share of the budget before learning begins, as a remedy sets it."""
UPDATES = 50
"""Updates of a target network in a budget, as a remedy sets them."""
EPISODES = 20
"""Episodes in the steps of a training without any, as a remedy sets them."""
SMALLEST_DEVIATION = 1e-4
"""Smaller returns and value targets are not scaled up, see
`RunningStatistics.deviation`."""


def exploding(history: SessionHistory) -> Iterator[Finding]:
    """Loss or gradient a thousand times what they were: Pascanu et al. 2013,
    arXiv:1211.5063."""
    for column in ("grad_norm", "loss"):
        numbers = history.growth(column, 1000, 1e-3)
        if numbers:
            yield history.finding(
                "the training explodes",
                numbers,
                *smaller_steps(history.spec),
                since=history.growth_begins(column),
            )


def smaller_steps(spec: Mapping[str, Any]) -> Iterator[Option]:
    """What makes gradient steps smaller."""
    yield LOWER_LR
    if value_at(spec, CLIP) is None:
        yield set_to(CLIP, 0.5, words=" to 0.5, which limits gradients")
    else:
        yield lower(CLIP)


def huge_targets(history: SessionHistory) -> Iterator[Finding]:
    """Targets too large for an optimizer's steps: van Hasselt et al. 2016,
    arXiv:1602.07714."""
    column = "value_loss" if len(history.values("value_loss")) else "loss"
    error = history.late(column)
    if error > 1e6:
        numbers = (
            f"{column} {text(error)}, returns of {text(history.late('mean_return'))}"
        )
        # so that errors are of about 1
        factor = _power_of_ten(_reward_scale(history) / np.sqrt(error))
        yield history.finding(
            "values are far larger than a net learns well",
            numbers,
            *normalized_rewards(history.spec),
            set_to("env.reward_scale", factor, words=" to a smaller factor"),
        )


def normalized_rewards(spec: Mapping[str, Any]) -> Iterator[Option]:
    """Normalises rewards, if they are not yet."""
    if not value_at(spec, "env.normalize_reward"):
        yield set_to("env.normalize_reward", True, words=" true")


def _reward_scale(history: SessionHistory) -> float:
    """The factor on rewards; 1 if it is a word or unset."""
    scale = history.key("env.reward_scale")
    if isinstance(scale, int | float):
        return float(scale)
    return 1.0


def _steps_ahead(history: SessionHistory) -> float:
    """The steps that γ looks ahead; infinite without a discount."""
    gamma = history.key("agent.algorithm.gamma", 1.0)
    if gamma < 1:
        return 1 / float(1 - gamma)
    return np.inf


def _power_of_ten(number: float) -> float:
    return float(f"1e{round(np.log10(number))}")


def tiny_rewards(history: SessionHistory) -> Iterator[Finding]:
    """Rewards that no normalisation scales up: van Hasselt et al. 2016,
    arXiv:1602.07714."""
    returns = np.abs(history.values("mean_return"))
    lengths = history.episode_lengths()
    normalized = ("env.normalize_reward", "agent.algorithm.normalize_v_targets")
    if not any(map(history.key, normalized)) or not (len(returns) and len(lengths)):
        return
    horizon = min(lengths.max(), _steps_ahead(history))
    scale = 1.0
    if history.key("env.normalize_reward"):
        scale = _reward_scale(history)
    discounted = returns.max() / lengths.max() * horizon * scale
    if 0 < discounted < SMALLEST_DEVIATION:
        numbers = f"discounted returns of about {text(float(discounted))}"
        factor = _power_of_ten(_reward_scale(history) / discounted)
        yield history.finding(
            "rewards are too small to be normalised",
            numbers,
            set_to("env.reward_scale", factor, words=" to a larger factor"),
        )


def impossible_values(history: SessionHistory) -> Iterator[Finding]:
    """|Q| beyond Σ γ^t |r|, with the entropy bonus: van Hasselt et al. 2015,
    arXiv:1509.06461."""
    q = np.abs(history.values("q_value", 0.5))
    returns = np.abs(history.values("mean_return"))
    lengths = history.episode_lengths()
    if not (len(q) and len(returns) and len(lengths)) or history.key(
        "env.normalize_reward"
    ):
        return
    scale = history.key("env.reward_scale")
    clip = history.key("env.clip_reward")
    reward = returns.max() / lengths.min() * history.key("env.reward_scale", 1.0)
    if "sign" in (scale, clip) or isinstance(clip, float):
        reward = min(reward, clip if isinstance(clip, float) else 1.0)
    horizon = _steps_ahead(history)
    if horizon == np.inf:
        horizon = lengths.max()
    bonus = np.nan_to_num(history.late("alpha") * history.late("entropy"))
    bound = (reward + max(bonus, 0.0)) * horizon
    if median(q) > 3 * bound:
        numbers = f"|q_value| {text(median(q))}; the rewards allow about {text(bound)}"
        slower = higher("agent.net.update_frequency")
        if history.key("agent.net.update_type") == "polyak":
            slower = lower("agent.net.polyak_coef")
        yield history.finding(
            "Q-values beyond what the rewards allow",
            numbers,
            slower,
            lower("agent.algorithm.gamma", by=(1.02,)),
            LOWER_LR,
        )


def endless(history: SessionHistory) -> Iterator[Finding]:
    """No episode has ended, so that there is no return: Pardo et al. 2017,
    arXiv:1712.00378. It takes steps enough for several episodes of random actions, or
    very many."""
    random = history.random_length
    limit = history.key("env.max_t", 0.0)
    enough = SEVERAL_EPISODES * random if random is not None else LONG_EPISODE
    if history.column("epi")[-1] == 0 and history.steps > max(enough, limit):
        numbers = f"0 episodes in {history.column('frame')[-1]:,.0f} frames"
        if random is not None:
            numbers = f"{numbers}; those of random actions have {random:,.0f} steps"
        steps = int(np.clip(history.steps / EPISODES, 50, 1000))
        yield history.finding(
            "no episode has ended",
            numbers,
            set_to("env.max_t", steps, words=", a time limit"),
        )


def cut_episodes(history: SessionHistory) -> Iterator[Finding]:
    """A time limit that ends every episode long before what γ looks ahead: Pardo et al.
    2017, arXiv:1712.00378."""
    limit = history.key("env.max_t")
    lengths = history.episode_lengths()
    if limit is None or not len(lengths):
        return
    ahead = min(_steps_ahead(history), LONG_SIGHT)
    usual = min(median(lengths), history.random_length or np.inf)
    if usual >= 0.99 * limit and 4 * limit < ahead:
        yield history.finding(
            "a time limit cuts every episode short",
            f"env.max_t {limit}; episodes have {text(median(lengths))} steps",
            set_to("env.max_t", None, words=" to null, the environment's own limit"),
        )


def short_sight(history: SessionHistory) -> Iterator[Finding]:
    """Rewards that hardly count after a few of an episode's steps: Sutton and Barto
    2018, section 3.3."""
    gamma = history.key("agent.algorithm.gamma", 1.0)
    ahead = _steps_ahead(history)
    longest = history.episode_lengths().max(initial=0.0)
    if ahead < SHORT_SIGHT and longest > 10 * ahead:
        yield history.finding(
            "the agent does not look far ahead",
            f"agent.algorithm.gamma {text(gamma)} counts a reward "
            f"{2 * ahead:.0f} steps ahead by {gamma ** (2 * ahead):.0%}; an episode "
            f"has up to {text(longest)} steps",
            higher("agent.algorithm.gamma", by=(1,), least=USUAL_GAMMA),
        )


def no_learning(history: SessionHistory) -> Iterator[Finding]:
    """No gradient step yet: replay memories fill up to `training_start_step` first."""
    start = history.key("agent.algorithm.training_start_step", 0.0)
    frame = float(history.column("total_frame")[-1])
    steps = float(history.column("opt_step")[-1])
    if not steps and history.key("agent.net") and frame <= start * 1.1:
        numbers = f"opt_step 0 at frame {frame:,.0f}; training_start_step {start:,.0f}"
        warm_up = WARM_UP * history.key("env.max_frame", start)
        earlier = max(10.0, start / warm_up)
        yield history.finding(
            "it has not begun to learn",
            numbers,
            lower("agent.algorithm.training_start_step", by=(earlier,)),
            set_to(
                "env.max_frame", words=f" to more than {start:,.0f}, which takes longer"
            ),
        )


def small_replay(history: SessionHistory) -> Iterator[Finding]:
    """A replay memory that is full before training begins has lost what the warm-up
    gathered: Zhang and Sutton 2017, arXiv:1712.01275."""
    start = history.key("agent.algorithm.training_start_step", 0.0)
    size = history.key("agent.memory.max_size", start)
    if size < start:
        numbers = f"agent.memory.max_size {size:,.0f}; training_start_step {start:,.0f}"
        yield history.finding(
            "the replay memory is smaller than the warm-up",
            numbers,
            higher("agent.memory.max_size", least=10 * int(start)),
        )


def learning_rate_zero(history: SessionHistory) -> Iterator[Finding]:
    """A schedule that ends before the training: Loshchilov and Hutter 2016,
    arXiv:1608.03983. With a larger budget a rate may rise again, so only what follows
    its last value above zero counts."""
    frame = history.column("total_frame")
    rate = history.column("lr")
    is_early = frame < 0.9 * history.key("env.max_frame", 0.0)
    until = np.max(frame[rate > 0], initial=0.0)
    at_zero = frame[(rate == 0) & (frame > until) & is_early]
    if len(at_zero):
        numbers = f"lr 0 from frame {at_zero[0]:,.0f} on"
        keys = [f"agent.net.{role}lr_scheduler_spec" for role in ("actor_", "")]
        path = next(filter(history.key, keys), keys[-1])
        yield history.finding(
            "the learning rate is zero",
            numbers,
            set_to(
                f"{path}.frame",
                None,
                words=" to null, which ends it with env.max_frame",
            ),
            otherwise="a longer schedule in a new run",
            since=until,
        )


def entropy_collapsed(history: SessionHistory) -> Iterator[Finding]:
    """Hardly any entropy in the first fifth, without a rise of the returns: Mnih et al.
    2016, arXiv:1602.01783, section 5.1."""
    entropy = history.column("entropy")
    frame = history.column("total_frame")
    is_early = frame < 0.2 * history.key("env.max_frame", 0.0)
    known = np.isfinite(entropy)
    early = entropy[is_early & known]
    late = entropy[~is_early & known]
    has_few = len(early) + len(late) < FEW or is_early.sum() < 2 or not len(early)
    if has_few or early[0] <= 0 or history.rises:
        return
    if early[-1] <= 0.05 * early[0] and not median(late) > early[-1] * 5:
        numbers = f"entropy {text(float(early[-1]))} of {text(float(early[0]))} nat"
        yield history.finding(
            "the entropy collapsed: the policy explores no more",
            f"{numbers} in the first fifth",
            higher(ENTROPY, least=0.01),
            *usual_target(history, "raise"),
            LOWER_LR,
        )


def entropy_stays(history: SessionHistory) -> Iterator[Finding]:
    """A policy that stays as random as it began: it learns nothing, or the bonus
    outweighs the rewards. Schulman 2016, "The nuts and bolts of deep RL research"."""
    entropy = history.values("entropy")
    if len(entropy) < FEW or entropy[0] <= 0 or history.rises:
        return
    if median(entropy[-FEW:]) >= 0.97 * entropy.max():
        numbers = (
            f"entropy {text(float(entropy[-1]))}, at most "
            f"{text(float(entropy.max()))} nat"
        )
        yield history.finding(
            "the policy is still random",
            numbers,
            lower(ENTROPY, by=(10, 100)),
            *usual_target(history, "lower"),
            RAISE_LR,
        )


def usual_target(history: SessionHistory, verb: str) -> Iterator[Option]:
    """Sets a target entropy that is a number to the usual one."""
    target = history.key(TARGET_ENTROPY)
    if isinstance(target, int | float):
        words = f' to "auto", or {verb} it'
        yield set_to(TARGET_ENTROPY, "auto", words=words)


def no_exploration(history: SessionHistory) -> Iterator[Finding]:
    """ε or τ that is at its end before a twentieth of the budget, while returns do not
    rise. See Sutton and Barto 2018, section 2.3."""
    explored = history.column("explore_var")
    frame = history.column("total_frame")
    known = np.isfinite(explored)
    budget = history.key("env.max_frame", 0.0)
    begin = explored[known & (frame >= 0.05 * budget)]
    if known.sum() < FEW or frame[-1] < 0.2 * budget or not len(begin) or history.rises:
        return
    if begin[0] <= 0.02:
        numbers = f"explore_var {text(float(begin[0]))} after 5 % of the frames"
        fifth = int(budget / 5)
        decay = {
            "name": "linear_decay",
            "start_val": 1.0,
            "end_val": 0.05,
            "start_step": 0,
            "end_step": fifth,
        }
        path = "agent.algorithm.explore_var_spec"
        longer = higher(f"{path}.end_step", least=fifth)
        if history.key(f"{path}.name") == "no_decay":
            longer = set_to(path, decay, words=" to a schedule that begins at 1")
        yield history.finding(
            "hardly any exploration", numbers, longer, otherwise="more exploration"
        )


def far_updates(history: SessionHistory) -> Iterator[Finding]:
    """A KL far beyond ε²/2, which a policy at PPO's clip has: arXiv:1707.06347, section
    4. A quarter of the rows is enough: a policy that such updates make deterministic
    has a KL of 0."""
    kls = history.values("approx_kl")
    eps = history.late("clip_eps")
    kl = 0.0
    if len(kls) >= FEW:
        kl = float(np.quantile(kls, 0.75))
    if kl > 5 * eps**2 / 2:
        usual = f"clip_eps {text(eps)} suggests about {text(eps**2 / 2)}"
        numbers = f"approx_kl above {text(kl)} in a quarter of the rows; {usual}"
        yield history.finding(
            "updates leave the region that PPO trusts", numbers, LOWER_LR, FEWER_EPOCHS
        )


def clipped(history: SessionHistory) -> Iterator[Finding]:
    """Nearly all samples clipped, or none: Engstrom et al. 2020, arXiv:2005.12729."""
    shares = history.values("clip_fraction")
    share = history.late("clip_fraction")
    if len(shares) >= FEW and share > 0.6:
        yield history.finding(
            "PPO clips most samples",
            f"clip_fraction {text(share)}",
            LOWER_LR,
            FEWER_EPOCHS,
        )
    elif len(shares) >= FEW and not shares.any() and history.late("lr") > 0:
        yield history.finding(
            "PPO's updates hardly change the policy",
            "clip_fraction 0",
            RAISE_LR,
            higher("agent.algorithm.training_epoch", by=(4,)),
        )


def blind_critic(history: SessionHistory) -> Iterator[Finding]:
    """Values that explain nothing of the returns: Schulman et al. 2015,
    arXiv:1506.02438. Equal returns, as in a solved task, leave nothing to explain."""
    explained = history.values("explained_variance", 0.5)
    if len(explained) >= FEW and median(explained) <= 0.05 and not history.rises:
        numbers = f"explained_variance {text(median(explained))} in the second half"
        options = [*normalized_rewards(history.spec)]
        if history.key("agent.net.shared"):
            options.append(set_to("agent.net.shared", False, words=" false"))
        yield history.finding(
            "the critic does not predict the returns",
            numbers,
            *options,
            otherwise="a larger critic",
        )


def frozen_target(history: SessionHistory) -> Iterator[Finding]:
    """A target network that never follows: Mnih et al. 2015, Nature 518."""
    if len(history.rows) < FEW or not len(history.values("q_value")):
        return
    frame = float(history.column("total_frame")[-1])
    every = history.key("agent.net.update_frequency", 0.0)
    tau = history.key("agent.net.polyak_coef", 1.0)
    steps = float(history.column("opt_step")[-1])
    if frame < every:
        numbers = f"agent.net.update_frequency {every:,.0f}; {frame:,.0f} frames so far"
        often = max(10.0, UPDATES * every / history.key("env.max_frame", every))
        yield history.finding(
            "the target network never moved",
            numbers,
            lower("agent.net.update_frequency", by=(often,)),
        )
    elif history.key("agent.net.update_type") == "polyak" and tau * steps < 0.1:
        numbers = f"agent.net.polyak_coef {tau:g}; {steps:,.0f} steps so far"
        yield history.finding(
            "the target network never moved",
            numbers,
            higher("agent.net.polyak_coef", least=USUAL_POLYAK),
        )


def lost(history: SessionHistory) -> Iterator[Finding]:
    """Returns that rose and fell again: Henderson et al. 2018, arXiv:1709.06560. Small
    returns of few rows rise and fall by chance."""
    returns = history.values("recent_return")
    if len(returns) < SEVERAL or history.spread == 0:
        return
    begin, best, end = (float(x) for x in (returns[0], returns.max(), returns[-1]))
    if min(
        best - end, best - begin
    ) >= 0.4 * history.spread and best - end > 0.25 * abs(best):
        numbers = f"recent_return fell from {text(best)} to {text(end)}"
        anneal = set_to(
            "agent.net.lr_scheduler_spec",
            {"name": "LinearToZero", "frame": None},
            words=", to anneal the learning rate",
        )
        options = [anneal, LOWER_LR]
        if history.key("agent.algorithm.reset_frequency"):
            options = [
                higher(
                    "agent.algorithm.reset_frequency",
                    words=", as the last reset was late",
                )
            ]
        entropy = history.late("entropy")
        if entropy < 1e-3:
            numbers = f"{numbers}; entropy {text(entropy)}: it explores no more"
            options = [LOWER_LR]
        yield history.finding(
            "it was better before",
            numbers,
            *options,
            words="; --which best has the agent of before",
            since=history.frame_of_best(),
        )


def growing_lag(history: SessionHistory) -> Iterator[Finding]:
    """Gradients or steps ever older than the weights: Recht et al. 2011,
    arXiv:1106.5730, and Espeholt et al. 2018, arXiv:1802.01561."""
    for column, options in (
        ("staleness_p95", (FEWER, *MORE_FRAMES)),
        ("policy_lag", (lower("meta.actor_learner.queue_size", by=(2,)), FEWER)),
    ):
        numbers = history.growth(column, 3, 1.0)
        if numbers:
            yield history.finding(
                "workers fall behind", numbers, *options, otherwise="a faster learner"
            )


def waiting(history: SessionHistory) -> Iterator[Finding]:
    """Half of the time spent on waiting: the parts of a mode are out of balance."""
    for column, cause, options in (
        ("actor_wait_share", "the learner is the slower part", (FEWER,)),
        (
            "learner_wait_share",
            "the actors are the slower part",
            (MORE, higher("env.num_envs", by=(2,))),
        ),
        ("sync_share", "workers exchange often", MORE_FRAMES),
    ):
        serial = (
            history.key("meta.actor_learner.serial") and column == "learner_wait_share"
        )
        share = history.late(column)
        if share > 0.5 and not serial:
            finding = history.finding(
                "much of the time is waiting", f"{column} {text(share)}", *options
            )
            advice = cause
            if finding.advice:
                advice = f"{cause}: {finding.advice}"
            # it costs time and spoils no learning, so there is nothing to cure
            yield finding._replace(advice=advice, remedies=())


SYMPTOMS: tuple[Symptom, ...] = (
    exploding,
    huge_targets,
    tiny_rewards,
    impossible_values,
    endless,
    cut_episodes,
    no_learning,
    small_replay,
    learning_rate_zero,
    short_sight,
    entropy_collapsed,
    entropy_stays,
    no_exploration,
    far_updates,
    clipped,
    blind_critic,
    frozen_target,
    lost,
    growing_lag,
    waiting,
)
"""The most serious first."""
AT_ONCE = (
    exploding,
    huge_targets,
    tiny_rewards,
    endless,
    cut_episodes,
    no_learning,
    small_replay,
    learning_rate_zero,
)
"""The problems that even a short training shows."""
