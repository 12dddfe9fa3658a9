"""What is wrong with the learning of one Session, as its rows show it.

The thresholds are rules of thumb. A finding needs a clear case, because a false alarm costs trust.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from slm_lab.core.text import significant as text
from slm_lab.experiment.doctor.case import Course, Finding, median

Symptom: TypeAlias = Callable[[Course], Finding | None]

FEW = 8
"""Rows with values that a judgement of a trend needs."""
LOWER_LR = "lower agent.net.optim_spec.lr"


def exploding(course: Course) -> Finding | None:
    """Loss or gradient a thousand times what they were: Pascanu et al. 2013, arXiv:1211.5063."""
    for column in ("grad_norm", "loss"):
        early, late = (np.abs(course.values(column, *part)) for part in ((0, 0.25), (0.75, 1)))
        if min(len(early), len(late)) < 2 or median(late) < 1000 * max(median(early), 1e-3):
            continue
        numbers = f"{column} went from {text(median(early))} to {text(median(late))}"
        clip = "" if course.key("agent.net.clip_grad_val") else ", or set agent.net.clip_grad_val"
        return Finding("the training explodes", numbers, LOWER_LR + clip)
    return None


def huge_targets(course: Course) -> Finding | None:
    """Targets of a size for which the steps of an optimizer are not made: van Hasselt et al. 2016,
    arXiv:1602.07714."""
    error = course.late("value_loss")
    if not error > 1e6:
        return None
    numbers = f"value_loss {text(error)}, returns of {text(course.late('mean_return'))}"
    advice = "scale rewards: env.normalize_reward, or a smaller env.reward_scale"
    return Finding("values are far larger than a net learns well", numbers, advice)


def impossible_values(course: Course) -> Finding | None:
    """|Q| beyond Σ γ^t |r|, with the entropy bonus: van Hasselt et al. 2015, arXiv:1509.06461."""
    q, gamma = np.abs(course.values("q_value", 0.5)), course.key("agent.algorithm.gamma")
    returns = np.abs(course.values("mean_return"))
    lengths = course.values("episode_length")
    if not len(q) or not len(returns) or not lengths.size or course.key("env.normalize_reward"):
        return None
    scale, clip = course.key("env.reward_scale"), course.key("env.clip_reward")
    reward = returns.max() / lengths.min() * (scale if isinstance(scale, float) else 1.0)
    if "sign" in (scale, clip) or isinstance(clip, float):
        reward = min(reward, clip if isinstance(clip, float) else 1.0)
    horizon = lengths.max() if gamma is None or gamma >= 1 else 1 / (1 - gamma)
    bonus = np.nan_to_num(course.late("alpha") * course.late("entropy"))
    bound = (reward + max(bonus, 0.0)) * horizon
    if median(q) <= 3 * bound:
        return None
    numbers = f"|q_value| {text(median(q))}; the rewards allow about {text(bound)}"
    advice = f"a slower target network, a gamma below {gamma}, or a smaller learning rate"
    return Finding("Q-values beyond what the rewards allow", numbers, advice)


def entropy_collapsed(course: Course) -> Finding | None:
    """Hardly any entropy in the first fifth: Mnih et al. 2016, arXiv:1602.01783, section 5.1."""
    entropy = course.values("entropy")
    budget = course.key("env.max_frame") or 0
    early = course.rows["total_frame"] < 0.2 * budget
    if len(entropy) < FEW or entropy[0] <= 0 or early.sum() < 2:
        return None
    seen = course.rows["entropy"][early]
    seen = seen[np.isfinite(seen)]
    if not len(seen) or seen[-1] > 0.05 * entropy[0] or median(entropy[len(seen) :]) > seen[-1] * 5:
        return None
    numbers = f"entropy {text(float(seen[-1]))} of {text(float(entropy[0]))} nat in the first fifth"
    advice = "raise agent.algorithm.entropy_coef_spec (or target_entropy), or " + LOWER_LR
    return Finding("the entropy collapsed: the policy explores no more", numbers, advice)


def entropy_stays(course: Course) -> Finding | None:
    """A policy that stays as random as it began: it learns nothing, or the bonus outweighs the
    rewards. Schulman 2016, "The nuts and bolts of deep RL research"."""
    entropy = course.values("entropy")
    if len(entropy) < FEW or entropy[0] <= 0 or median(entropy[-FEW:]) < 0.97 * entropy.max():
        return None
    if rises(course):
        return None
    numbers = f"entropy {text(float(entropy[-1]))}, at most {text(float(entropy.max()))} nat"
    advice = "lower the entropy bonus (or target_entropy), or raise the learning rate"
    return Finding("the policy stays as random as it began", numbers, advice)


def no_exploration(course: Course) -> Finding | None:
    """ε or τ at its end before a twentieth of the budget, without a rise of the returns: Sutton and
    Barto 2018, section 2.3."""
    explored, frame = course.rows["explore_var"], course.rows["total_frame"]
    known = np.isfinite(explored)
    budget = course.key("env.max_frame") or 0
    if known.sum() < FEW or frame[-1] < 0.2 * budget or rises(course):
        return None
    begin = explored[known & (frame >= 0.05 * budget)]
    if not len(begin) or begin[0] > 0.02:
        return None
    numbers = f"explore_var {text(float(begin[0]))} after 5 % of the frames"
    return Finding("hardly any exploration", numbers, "a longer agent.algorithm.explore_var_spec")


def far_updates(course: Course) -> Finding | None:
    """A KL far beyond ε²/2, that of a policy at PPO's clip: arXiv:1707.06347, section 4."""
    kl, eps = course.late("approx_kl"), course.late("clip_eps")
    if not kl > 5 * eps**2 / 2:
        return None
    numbers = f"approx_kl {text(kl)}; clip_eps {text(eps)} suggests about {text(eps**2 / 2)}"
    return Finding(
        "updates leave the region that PPO trusts", numbers, f"{LOWER_LR}, or training_epoch"
    )


def clipped(course: Course) -> Finding | None:
    """Nearly all samples clipped, or none: Engstrom et al. 2020, arXiv:2005.12729."""
    shares, share = course.values("clip_fraction"), course.late("clip_fraction")
    if len(shares) < FEW:
        return None
    if share > 0.6:
        advice = f"{LOWER_LR}, or agent.algorithm.training_epoch"
        return Finding("PPO clips most samples", f"clip_fraction {text(share)}", advice)
    rate = course.late("lr")
    if rate > 0 and not shares.any():
        advice = "raise agent.net.optim_spec.lr, or agent.algorithm.training_epoch"
        return Finding("PPO's updates hardly change the policy", "clip_fraction 0", advice)
    return None


def blind_critic(course: Course) -> Finding | None:
    """Values that explain nothing of the returns: Schulman et al. 2015, arXiv:1506.02438. Equal
    returns, such as those of a solved task, leave nothing to explain."""
    explained = course.values("explained_variance", 0.5)
    if len(explained) < FEW or median(explained) > 0.05 or rises(course):
        return None
    numbers = f"explained_variance {text(median(explained))} in the second half"
    advice = "env.normalize_reward, a larger critic or its own net (agent.net.shared false)"
    return Finding("the critic explains nothing of the returns", numbers, advice)


def learning_rate_zero(course: Course) -> Finding | None:
    """A schedule that ends before the training: Loshchilov and Hutter 2016, arXiv:1608.03983."""
    rate, frame = course.rows["lr"], course.rows["total_frame"]
    at_zero = frame[(rate == 0) & (frame < 0.9 * (course.key("env.max_frame") or 0))]
    if not len(at_zero):
        return None
    numbers = f"lr 0 from frame {at_zero[0]:,.0f} on"
    advice = "agent.net.lr_scheduler_spec.frame: the frames of the budget"
    return Finding("the learning rate is zero", numbers, advice)


def endless(course: Course) -> Finding | None:
    """No episode has ended, so that there is no return: Pardo et al. 2017, arXiv:1712.00378."""
    epi, frame = course.rows["epi"][-1], float(course.rows["total_frame"][-1])
    if len(course.rows) < FEW or epi != 0:
        return None
    numbers = f"0 episodes in {frame:,.0f} frames"
    return Finding("no episode has ended", numbers, "a time limit: env.max_t")


def no_learning(course: Course) -> Finding | None:
    """No gradient step yet: replay memories fill up to `training_start_step` first."""
    start = course.key("agent.algorithm.training_start_step") or 0
    frame, steps = float(course.rows["total_frame"][-1]), float(course.rows["opt_step"][-1])
    if steps or not course.key("agent.net") or frame > start * 1.1:
        return None
    numbers = f"opt_step 0 at frame {frame:,.0f}; training_start_step {start:,}"
    advice = "a smaller agent.algorithm.training_start_step, or a larger env.max_frame"
    return Finding("it has not begun to learn", numbers, advice)


def frozen_target(course: Course) -> Finding | None:
    """A target network that never follows: Mnih et al. 2015, Nature 518."""
    frame, every = float(course.rows["total_frame"][-1]), course.key("agent.net.update_frequency")
    is_copied = course.key("agent.net.update_type") == "replace"
    if len(course.rows) < FEW or not course.values("q_value").size:
        return None
    if is_copied and every and frame < every:
        numbers = f"agent.net.update_frequency {every:,}; {frame:,.0f} frames so far"
        return Finding("the target network never moved", numbers, "a lower update_frequency")
    if not is_copied and course.key("agent.net.polyak_coef") == 0:
        return Finding(
            "the target network never moves", "agent.net.polyak_coef 0", "0.005 is usual"
        )
    return None


def lost(course: Course) -> Finding | None:
    """Returns that rose and fell again: Henderson et al. 2018, arXiv:1709.06560."""
    returns = course.values("recent_return")
    if len(returns) < FEW or course.spread == 0:
        return None
    best = int(returns.argmax())
    fall = float(returns[best] - returns[-1])
    if fall < 0.4 * course.spread or returns[best] - returns[0] < 0.4 * course.spread:
        return None
    numbers = f"recent_return fell from {text(float(returns[best]))} to {text(float(returns[-1]))}"
    advice = "anneal the learning rate to zero; --which best has the agent of before"
    return Finding("it was better before", numbers, advice)


def growing_lag(course: Course) -> Finding | None:
    """Gradients or steps ever older than the weights: Recht et al. 2011, arXiv:1106.5730, and
    Espeholt et al. 2018, arXiv:1802.01561."""
    for column, advice in (
        ("staleness_p95", "fewer workers, or more frames per gradient"),
        ("policy_lag", "a smaller meta.actor_learner.queue_size, or fewer actors"),
    ):
        early, late = (course.values(column, *part) for part in ((0, 0.25), (0.75, 1)))
        if len(late) >= 2 and median(late) > 3 * max(median(early), 1.0):
            numbers = f"{column} went from {text(median(early))} to {text(median(late))}"
            return Finding("workers fall behind", numbers, advice)
    return None


def waiting(course: Course) -> Finding | None:
    """Half of the time spent on waiting: the parts of a mode are out of balance."""
    for column, advice in (
        ("actor_wait_share", "the learner is the slower part: fewer actors"),
        ("learner_wait_share", "the actors are the slower part: more actors, or env.num_envs"),
        ("sync_share", "longer rollouts or larger minibatches between two exchanges"),
    ):
        serial = course.key("meta.actor_learner.serial") and column == "learner_wait_share"
        share = course.late(column)
        if share > 0.5 and not serial:
            return Finding("much of the time is waiting", f"{column} {text(share)}", advice)
    return None


def rises(course: Course) -> bool:
    """Whether the returns of the last quarter are above those of the first."""
    early, late = course.values("mean_return", 0, 0.25), course.values("mean_return", 0.75, 1)
    return bool(len(early) and len(late)) and median(late) - median(early) > 0.2 * course.spread


SYMPTOMS: tuple[Symptom, ...] = (
    exploding,
    huge_targets,
    impossible_values,
    endless,
    no_learning,
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
