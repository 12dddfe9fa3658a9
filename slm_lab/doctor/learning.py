"""Problems of the learning of one Session that its rows show.

The thresholds are rules of thumb. A finding needs a clear case, because a false alarm
costs trust.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from slm_lab.core.text import significant as text
from slm_lab.doctor.history import Finding, SessionHistory, median

Symptom: TypeAlias = Callable[[SessionHistory], Iterator[Finding]]
"""Yields a finding if the Session has the illness."""

FEW = 8
SEVERAL = 20
"""Rows with values that a judgement of a trend needs, and one of returns."""
SEVERAL_EPISODES = 3
LONG_EPISODE = 10_000
"""Episodes of random actions, and steps where their length is unknown, in which one
should end."""
LOWER_LR = "lower agent.net.optim_spec.lr"
RAISE_LR = "raise agent.net.optim_spec.lr"
RAISE_ENTROPY = "raise agent.algorithm.entropy_coef_spec.start_val"
FEWER = "lower meta.max_session"
MORE = "raise meta.max_session"
MORE_FRAMES = (
    "raise agent.algorithm.time_horizon",
    "raise agent.algorithm.training_frequency",
)
SMALLEST_DEVIATION = 1e-4
"""Smaller returns and value targets are not scaled up, see
`RunningStatistics.deviation`."""


def exploding(history: SessionHistory) -> Iterator[Finding]:
    """Loss or gradient a thousand times what they were: Pascanu et al. 2013,
    arXiv:1211.5063."""
    clip = (
        ()
        if history.key("agent.net.clip_grad_val")
        else ("set agent.net.clip_grad_val",)
    )
    for column in ("grad_norm", "loss"):
        numbers = history.growth(column, 1000, 1e-3)
        if numbers:
            yield Finding(
                "the training explodes", numbers, history.advise(LOWER_LR, *clip)
            )


def huge_targets(history: SessionHistory) -> Iterator[Finding]:
    """Targets too large for an optimizer's steps: van Hasselt et al. 2016,
    arXiv:1602.07714."""
    column = "value_loss" if len(history.values("value_loss")) else "loss"
    error = history.late(column)
    if error > 1e6:
        numbers = (
            f"{column} {text(error)}, returns of {text(history.late('mean_return'))}"
        )
        scale = (
            ()
            if history.key("env.normalize_reward")
            else ("set env.normalize_reward true",)
        )
        advice = history.advise(*scale, "set env.reward_scale to a smaller factor")
        yield Finding("values are far larger than a net learns well", numbers, advice)


def tiny_rewards(history: SessionHistory) -> Iterator[Finding]:
    """Rewards that no normalisation scales up: van Hasselt et al. 2016,
    arXiv:1602.07714."""
    gamma = history.key("agent.algorithm.gamma", 1.0)
    returns = np.abs(history.values("mean_return"))
    lengths = history.values("episode_length")
    normalized = ("env.normalize_reward", "agent.algorithm.normalize_v_targets")
    if not any(map(history.key, normalized)) or not (len(returns) and len(lengths)):
        return
    horizon = min(lengths.max(), 1 / (1 - gamma) if gamma < 1 else np.inf)
    scale = 1.0
    if history.key("env.normalize_reward"):
        scale = history.key("env.reward_scale", 1.0)
    discounted = returns.max() / lengths.max() * horizon * scale
    if 0 < discounted < SMALLEST_DEVIATION:
        numbers = f"discounted returns of about {text(float(discounted))}"
        advice = history.advise("set env.reward_scale to a larger factor")
        yield Finding("rewards are too small to be normalised", numbers, advice)


def impossible_values(history: SessionHistory) -> Iterator[Finding]:
    """|Q| beyond Σ γ^t |r|, with the entropy bonus: van Hasselt et al. 2015,
    arXiv:1509.06461."""
    q = np.abs(history.values("q_value", 0.5))
    gamma = history.key("agent.algorithm.gamma", 1.0)
    returns = np.abs(history.values("mean_return"))
    lengths = history.values("episode_length")
    if not (len(q) and len(returns) and len(lengths)) or history.key(
        "env.normalize_reward"
    ):
        return
    scale = history.key("env.reward_scale")
    clip = history.key("env.clip_reward")
    reward = returns.max() / lengths.min() * history.key("env.reward_scale", 1.0)
    if "sign" in (scale, clip) or isinstance(clip, float):
        reward = min(reward, clip if isinstance(clip, float) else 1.0)
    horizon = lengths.max() if gamma >= 1 else 1 / (1 - gamma)
    bonus = np.nan_to_num(history.late("alpha") * history.late("entropy"))
    bound = (reward + max(bonus, 0.0)) * horizon
    if median(q) > 3 * bound:
        numbers = f"|q_value| {text(median(q))}; the rewards allow about {text(bound)}"
        slower = "raise agent.net.update_frequency"
        if history.key("agent.net.update_type") == "polyak":
            slower = "lower agent.net.polyak_coef"
        advice = history.advise(slower, "lower agent.algorithm.gamma", LOWER_LR)
        yield Finding("Q-values beyond what the rewards allow", numbers, advice)


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
        advice = history.advise("set env.max_t, a time limit")
        yield Finding("no episode has ended", numbers, advice)


def no_learning(history: SessionHistory) -> Iterator[Finding]:
    """No gradient step yet: replay memories fill up to `training_start_step` first."""
    start = history.key("agent.algorithm.training_start_step", 0.0)
    frame = float(history.column("total_frame")[-1])
    steps = float(history.column("opt_step")[-1])
    if not steps and history.key("agent.net") and frame <= start * 1.1:
        numbers = f"opt_step 0 at frame {frame:,.0f}; training_start_step {start:,.0f}"
        advice = history.advise(
            "lower agent.algorithm.training_start_step", "raise env.max_frame"
        )
        yield Finding("it has not begun to learn", numbers, advice)


def small_replay(history: SessionHistory) -> Iterator[Finding]:
    """A replay memory that is full before training begins has lost what the warm-up
    gathered: Zhang and Sutton 2017, arXiv:1712.01275."""
    start = history.key("agent.algorithm.training_start_step", 0.0)
    size = history.key("agent.memory.max_size", start)
    if size < start:
        numbers = f"agent.memory.max_size {size:,.0f}; training_start_step {start:,.0f}"
        advice = history.advise("raise agent.memory.max_size")
        yield Finding("the replay memory is smaller than the warm-up", numbers, advice)


def learning_rate_zero(history: SessionHistory) -> Iterator[Finding]:
    """A schedule that ends before the training: Loshchilov and Hutter 2016,
    arXiv:1608.03983. With a larger budget a rate may rise again, so only what follows
    its last value above zero counts."""
    frame = history.column("total_frame")
    rate = history.column("lr")
    is_early = frame < 0.9 * history.key("env.max_frame", 0.0)
    is_last = frame > np.max(frame[rate > 0], initial=-np.inf)
    at_zero = frame[(rate == 0) & is_last & is_early]
    if len(at_zero):
        numbers = f"lr 0 from frame {at_zero[0]:,.0f} on"
        keys = [f"agent.net.{role}lr_scheduler_spec" for role in ("actor_", "")]
        path = next(filter(history.key, keys), keys[-1])
        advice = history.advise(
            f"set {path}.frame to null, which ends it with env.max_frame"
        )
        advice = advice or "a longer schedule in a new run"
        yield Finding("the learning rate is zero", numbers, advice)


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
        advice = history.advise(
            RAISE_ENTROPY, "raise agent.algorithm.target_entropy", LOWER_LR
        )
        what = "the entropy collapsed: the policy explores no more"
        yield Finding(what, f"{numbers} in the first fifth", advice)


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
        bonus = "lower agent.algorithm.entropy_coef_spec.start_val"
        target = "lower agent.algorithm.target_entropy"
        advice = history.advise(bonus, target, RAISE_LR)
        yield Finding("the policy is still random", numbers, advice)


def no_exploration(history: SessionHistory) -> Iterator[Finding]:
    """ε or τ at its end before a twentieth of the budget, without a rise of the
    returns: Sutton and Barto 2018, section 2.3."""
    explored = history.column("explore_var")
    frame = history.column("total_frame")
    known = np.isfinite(explored)
    budget = history.key("env.max_frame", 0.0)
    begin = explored[known & (frame >= 0.05 * budget)]
    if known.sum() < FEW or frame[-1] < 0.2 * budget or not len(begin) or history.rises:
        return
    if begin[0] <= 0.02:
        numbers = f"explore_var {text(float(begin[0]))} after 5 % of the frames"
        longer = "raise agent.algorithm.explore_var_spec.end_step"
        advice = history.advise(longer) or "more exploration"
        yield Finding("hardly any exploration", numbers, advice)


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
        advice = history.advise(LOWER_LR, "lower agent.algorithm.training_epoch")
        yield Finding("updates leave the region that PPO trusts", numbers, advice)


def clipped(history: SessionHistory) -> Iterator[Finding]:
    """Nearly all samples clipped, or none: Engstrom et al. 2020, arXiv:2005.12729."""
    shares = history.values("clip_fraction")
    share = history.late("clip_fraction")
    if len(shares) >= FEW and share > 0.6:
        advice = history.advise(LOWER_LR, "lower agent.algorithm.training_epoch")
        yield Finding("PPO clips most samples", f"clip_fraction {text(share)}", advice)
    elif len(shares) >= FEW and not shares.any() and history.late("lr") > 0:
        advice = history.advise(RAISE_LR, "raise agent.algorithm.training_epoch")
        yield Finding(
            "PPO's updates hardly change the policy", "clip_fraction 0", advice
        )


def blind_critic(history: SessionHistory) -> Iterator[Finding]:
    """Values that explain nothing of the returns: Schulman et al. 2015,
    arXiv:1506.02438. Equal returns, such as those of a solved task, leave nothing to
    explain."""
    explained = history.values("explained_variance", 0.5)
    if len(explained) >= FEW and median(explained) <= 0.05 and not history.rises:
        numbers = f"explained_variance {text(median(explained))} in the second half"
        scale = (
            ()
            if history.key("env.normalize_reward")
            else ("set env.normalize_reward true",)
        )
        separate = (
            ("set agent.net.shared false",) if history.key("agent.net.shared") else ()
        )
        advice = history.advise(*scale, *separate) or "a larger critic"
        yield Finding("the critic does not predict the returns", numbers, advice)


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
        advice = history.advise("lower agent.net.update_frequency")
        yield Finding("the target network never moved", numbers, advice)
    elif history.key("agent.net.update_type") == "polyak" and tau * steps < 0.1:
        numbers = f"agent.net.polyak_coef {tau:g}; {steps:,.0f} steps so far"
        advice = history.advise("raise agent.net.polyak_coef")
        yield Finding("the target network never moved", numbers, advice)


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
        anneal = history.advise(
            "set agent.net.lr_scheduler_spec, to anneal the learning rate"
        )
        if history.key("agent.algorithm.reset_frequency"):
            anneal = history.advise(
                "raise agent.algorithm.reset_frequency, as the last reset was late"
            )
        advice = f"{anneal}; --which best has the agent of before"
        entropy = history.late("entropy")
        if entropy < 1e-3:
            numbers = f"{numbers}; entropy {text(entropy)}: it explores no more"
            advice = history.advise(LOWER_LR)
        yield Finding("it was better before", numbers, advice)


def growing_lag(history: SessionHistory) -> Iterator[Finding]:
    """Gradients or steps ever older than the weights: Recht et al. 2011,
    arXiv:1106.5730, and Espeholt et al. 2018, arXiv:1802.01561."""
    for column, options in (
        ("staleness_p95", (FEWER, *MORE_FRAMES)),
        ("policy_lag", ("lower meta.actor_learner.queue_size", FEWER)),
    ):
        numbers = history.growth(column, 3, 1.0)
        if numbers:
            advice = history.advise(*options) or "a faster learner"
            yield Finding("workers fall behind", numbers, advice)


def waiting(history: SessionHistory) -> Iterator[Finding]:
    """Half of the time spent on waiting: the parts of a mode are out of balance."""
    for column, cause, options in (
        ("actor_wait_share", "the learner is the slower part", (FEWER,)),
        (
            "learner_wait_share",
            "the actors are the slower part",
            (MORE, "raise env.num_envs"),
        ),
        ("sync_share", "workers exchange often", MORE_FRAMES),
    ):
        serial = (
            history.key("meta.actor_learner.serial") and column == "learner_wait_share"
        )
        share = history.late(column)
        if share > 0.5 and not serial:
            advice = history.advise(*options)
            advice = f"{cause}: {advice}" if advice else cause
            yield Finding(
                "much of the time is waiting", f"{column} {text(share)}", advice
            )


SYMPTOMS: tuple[Symptom, ...] = (
    exploding,
    huge_targets,
    tiny_rewards,
    impossible_values,
    endless,
    no_learning,
    small_replay,
    learning_rate_zero,
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
    no_learning,
    small_replay,
    learning_rate_zero,
)
"""The problems that even a short training shows."""
