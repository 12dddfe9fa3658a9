"""Every symptom on rows that have it, and on rows that do not."""

import numpy as np
import pytest

from slm_lab.doctor import learning
from slm_lab.doctor.history import SessionHistory
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.row import BASE_COLUMNS

R = 40
UP = np.linspace(0.0, 100.0, R)
SPEC = {
    "agent": {
        "algorithm": {
            "gamma": 0.99,
            "training_start_step": 1000,
            "training_epoch": 4,
            "training_frequency": 4,
            "entropy_coef_spec": {"start_val": 0.01},
            "explore_var_spec": {"end_step": 1000},
        },
        "memory": {"max_size": 1000},
        "net": {
            "clip_grad_val": 0.5,
            "update_type": "replace",
            "update_frequency": 1000,
            "polyak_coef": 1.0,
            "optim_spec": {"lr": 0.001},
            "lr_scheduler_spec": {"frame": 20_000},
            "shared": True,
        },
    },
    "env": {
        "num_envs": 2,
        "max_t": None,
        "max_frame": 40_000,
        "reward_scale": None,
        "clip_reward": None,
        "normalize_reward": False,
    },
    "meta": {"max_session": 2, "actor_learner": {"serial": False, "queue_size": 2}},
}
HEALTHY = {
    "frame": np.arange(1.0, R + 1) * 1000,
    "total_frame": np.arange(1.0, R + 1) * 1000,
    "opt_step": np.arange(1.0, R + 1) * 250,
    "epi": np.arange(1.0, R + 1) * 10,
    "mean_return": UP,
    "recent_return": UP,
    "loss": np.linspace(2.0, 1.0, R),
    "grad_norm": np.full(R, 0.5),
    "value_loss": np.full(R, 10.0),
    "q_value": UP / 2,
    "entropy": np.linspace(0.69, 0.2, R),
    "explore_var": np.linspace(1.0, 0.05, R),
    "approx_kl": np.full(R, 0.01),
    "clip_eps": np.full(R, 0.2),
    "clip_fraction": np.full(R, 0.1),
    "explained_variance": np.full(R, 0.8),
    "lr": np.linspace(3e-4, 1e-6, R),
    "staleness_p95": np.full(R, 3.0),
    "policy_lag": np.full(R, 2.0),
    "actor_wait_share": np.full(R, 0.1),
    "learner_wait_share": np.full(R, 0.2),
    "sync_share": np.full(R, 0.1),
}
ILL_SPECS = {
    "small_replay": {**SPEC, "agent": {**SPEC["agent"], "memory": {"max_size": 500}}},
    "tiny_rewards": {**SPEC, "env": {**SPEC["env"], "normalize_reward": True}},
    "cut_episodes": {**SPEC, "env": {**SPEC["env"], "max_t": 5}},
    "short_sight": {
        **SPEC,
        "agent": {
            **SPEC["agent"],
            "algorithm": {**SPEC["agent"]["algorithm"], "gamma": 0.5},
        },
    },
}
FLAT = {"mean_return": np.full(R, 20.0), "recent_return": np.full(R, 20.0)}


def course(**columns):
    empty = {name: np.full(R, np.nan) for name in BASE_COLUMNS}
    every = {**empty, **HEALTHY, **columns}
    return SessionHistory(Rows(tuple(every), np.stack(list(every.values()))), SPEC)


def found(symptom, seen):
    """The finding, or None."""
    return next(symptom(seen), None)


ILL = {
    "exploding": ({"grad_norm": np.geomspace(1, 1e8, R)}, "grad_norm went from"),
    "huge_targets": ({"value_loss": np.full(R, 1e12)}, "value_loss 1,000,000,000,000"),
    "impossible_values": (
        {"q_value": np.full(R, 5000.0)},
        "the rewards allow about 100",
    ),
    "entropy_collapsed": (
        {"entropy": np.r_[0.69, np.full(R - 1, 1e-3)], **FLAT},
        "entropy 0.00100 of 0.690 nat",
    ),
    "entropy_stays": (
        {"entropy": np.full(R, 1.09), **FLAT},
        "entropy 1.09, at most 1.09 nat",
    ),
    "no_exploration": ({"explore_var": np.zeros(R), **FLAT}, "explore_var 0 after 5 %"),
    "far_updates": (
        {"approx_kl": np.full(R, 0.4)},
        "clip_eps 0.200 suggests about 0.0200",
    ),
    "clipped": ({"clip_fraction": np.full(R, 0.9)}, "clip_fraction 0.900"),
    "blind_critic": (
        {"explained_variance": np.full(R, -0.2), **FLAT},
        "explained_variance -0.200",
    ),
    "learning_rate_zero": (
        {"lr": np.r_[np.full(20, 1e-3), np.zeros(20)]},
        "frame 21,000 on",
    ),
    "no_learning": (
        {"opt_step": np.zeros(R), "total_frame": np.linspace(10, 1000, R)},
        "opt_step 0 at frame 1,000; training_start_step 1,000",
    ),
    "small_replay": ({}, "agent.memory.max_size 500; training_start_step 1,000"),
    "frozen_target": (
        {"total_frame": np.linspace(1, 900, R)},
        "update_frequency 1,000; 900",
    ),
    "endless": (
        {"epi": np.zeros(R), "total_frame": np.arange(1.0, R + 1) * 2000},
        "0 episodes in 40,000 frames",
    ),
    "cut_episodes": (
        {"epi": np.arange(1.0, R + 1) * 200},
        "env.max_t 5; episodes have 5.00 steps",
    ),
    "short_sight": ({}, "gamma 0.500 counts a reward 4 steps ahead by 6%"),
    "tiny_rewards": (
        {"mean_return": UP * 1e-7},
        "discounted returns of about 1.00e-05",
    ),
    "lost": (
        {"recent_return": np.r_[UP[:30], np.full(10, 5.0)]},
        "fell from 74.4 to 5.00",
    ),
    "growing_lag": ({"policy_lag": np.linspace(1, 50, R)}, "policy_lag went from"),
    "waiting": ({"learner_wait_share": np.full(R, 0.8)}, "learner_wait_share 0.800"),
}


@pytest.mark.parametrize("name", [symptom.__name__ for symptom in learning.SYMPTOMS])
def test_a_symptom_is_found_in_sick_runs_and_not_in_healthy_ones(name):
    symptom = getattr(learning, name)
    columns, words = ILL[name]
    finding = found(symptom, course(**columns)._replace(spec=ILL_SPECS.get(name, SPEC)))
    assert words in finding.evidence
    assert finding.what
    assert finding.advice
    assert found(symptom, course()) is None
    assert "arXiv" in symptom.__doc__ or name in (
        "entropy_stays",
        "short_sight",
        "no_exploration",
        "no_learning",
        "frozen_target",
        "waiting",
    )


@pytest.mark.parametrize("num", [1, 2])
@pytest.mark.parametrize("symptom", learning.SYMPTOMS)
def test_one_or_two_rows_are_no_reason_to_worry(symptom, num):
    whole = course()
    short = Rows(whole.rows.columns, whole.rows.values[:, :num].copy())
    assert found(symptom, whole._replace(rows=short)) is None


@pytest.mark.parametrize("symptom", learning.SYMPTOMS)
def test_rows_without_any_report_of_a_learner_are_checked_too(symptom):
    known = ("total_frame", "opt_step", "mean_return")
    empty = {name: np.full(R, np.nan) for name in HEALTHY if name not in known}
    assert found(symptom, course(**empty)) is None


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("entropy_collapsed", {"entropy": np.linspace(-1.0, -5.0, R)}),
        ("entropy_collapsed", {"entropy": np.r_[0.69, np.full(R - 1, 1e-3)]}),
        (
            "entropy_collapsed",
            {"entropy": np.r_[0.69, np.full(9, 1e-3), np.full(R - 10, 0.3)], **FLAT},
        ),
        ("entropy_stays", {"entropy": np.full(R, 1.09)}),
        ("no_exploration", {"explore_var": np.zeros(R)}),
        ("lost", FLAT),
        ("blind_critic", {"explained_variance": np.full(R, -0.7)}),
        ("impossible_values", {"q_value": np.full(R, np.nan)}),
        ("far_updates", {"clip_eps": np.full(R, np.nan)}),
    ],
    ids=[
        "continuous",
        "learns with certainty",
        "recovered",
        "learns",
        "learns greedily",
        "flat",
        "solved",
        "no Q",
        "no clip",
    ],
)
def test_harmless_patterns_are_no_finding(name, columns):
    assert found(getattr(learning, name), course(**columns)) is None


def test_the_entropy_bonus_may_raise_values():
    values = {
        "q_value": np.full(R, 600.0),
        "alpha": np.full(R, 3.0),
        "entropy": np.full(R, 1.0),
    }
    assert found(learning.impossible_values, course(**values)) is None


NAN = np.full(R, np.nan)


@pytest.mark.parametrize(
    ("name", "columns", "words"),
    [
        (
            "huge_targets",
            {"value_loss": NAN, "loss": np.full(R, 1e12)},
            "loss 1,000,000,000,000",
        ),
        (
            "far_updates",
            {"approx_kl": np.r_[np.full(15, 0.4), np.zeros(25)]},
            "above 0.400 in",
        ),
        (
            "lost",
            {"recent_return": np.r_[UP[:30], np.full(10, 5.0)], "entropy": np.zeros(R)},
            "fell from 74.4 to 5.00; entropy 0: it explores no more",
        ),
    ],
)
def test_an_illness_shows_in_other_columns_too(name, columns, words):
    assert words in found(getattr(learning, name), course(**columns)).evidence


def test_a_target_network_that_hardly_updates_counts_as_frozen():
    net = {**SPEC["agent"]["net"], "update_type": "polyak", "polyak_coef": 1e-12}
    spec = {**SPEC, "agent": {**SPEC["agent"], "net": {**net, "update_frequency": 1}}}
    evidence = found(learning.frozen_target, course()._replace(spec=spec)).evidence
    assert evidence == "agent.net.polyak_coef 1e-12; 10,000 steps so far"
    spec["agent"]["net"]["polyak_coef"] = 0.005
    assert found(learning.frozen_target, course()._replace(spec=spec)) is None


def test_returns_that_a_reset_has_cost_are_put_down_to_it():
    fallen = course(**ILL["lost"][0])
    algorithm = {**SPEC["agent"]["algorithm"], "reset_frequency": 9000}
    spec = {**SPEC, "agent": {**SPEC["agent"], "algorithm": algorithm}}
    assert "reset" not in found(learning.lost, fallen).advice
    advice = found(learning.lost, fallen._replace(spec=spec)).advice
    assert advice.startswith("raise agent.algorithm.reset_frequency, as the last reset")


def test_a_rate_that_a_resume_has_raised_from_zero_is_not_zero():
    raised = np.r_[np.full(10, 1e-3), np.zeros(2), np.full(27, 5e-4), 0.0]
    assert found(learning.learning_rate_zero, course(lr=raised)) is None
    held = np.where(np.arange(R) < 25, raised, 0.0)
    assert (
        "lr 0 from frame 26,000 on"
        in found(learning.learning_rate_zero, course(lr=held)).evidence
    )


@pytest.mark.parametrize(
    ("bonus", "words"),
    [(0.0, "raise agent.net"), (0.01, "lower agent.algorithm.entropy_coef")],
)
def test_a_bonus_that_is_zero_is_not_lowered(bonus, words):
    algorithm = {
        **SPEC["agent"]["algorithm"],
        "entropy_coef_spec": {"start_val": bonus},
    }
    spec = {**SPEC, "agent": {**SPEC["agent"], "algorithm": algorithm}}
    seen = course(entropy=np.full(R, 1.09), **FLAT)._replace(spec=spec)
    assert found(learning.entropy_stays, seen).advice.startswith(words)


@pytest.mark.parametrize(
    ("random", "frames", "is_ill"),
    [
        (None, 19_000, False),
        (900.0, 5_000, False),
        (900.0, 6_000, True),
        (9.0, 3_000, True),
    ],
)
def test_a_time_limit_is_advised_only_after_several_episodes_of_random_actions(
    random, frames, is_ill
):
    """In each of the two copies; and the Session's own frames are counted, not those of
    all."""
    frame = np.linspace(1, frames, R)
    seen = course(epi=np.zeros(R), frame=frame, total_frame=2 * frame)
    finding = found(learning.endless, seen._replace(random_length=random))
    assert (finding is not None) is is_ill
    if finding is not None:
        assert finding.evidence.startswith(
            f"0 episodes in {frames:,} frames; those of random"
        )


def test_an_episode_may_last_as_long_as_the_spec_lets_it():
    spec = {**SPEC, "env": {**SPEC["env"], "max_t": 20_000}}
    assert found(learning.endless, course(epi=np.zeros(R))._replace(spec=spec)) is None


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_small_rewards_are_found_unless_they_are_scaled_first(scale):
    env = {**SPEC["env"], "normalize_reward": True, "reward_scale": scale}
    seen = course(mean_return=UP * 1e-7)._replace(spec={**SPEC, "env": env})
    assert (found(learning.tiny_rewards, seen) is not None) is (scale == 1.0)


SHORT = {
    "frames": {"total_frame": np.linspace(100, 4000, R)},
    "updates": {"opt_step": np.linspace(4, 160, R)},
    "episodes": {"epi": np.linspace(0, 12, R)},
}


@pytest.mark.parametrize("few", SHORT)
def test_a_run_of_a_few_updates_or_episodes_gets_no_advice_on_its_learning(few):
    ill = {**ILL["entropy_stays"][0], **ILL["blind_critic"][0], **ILL["clipped"][0]}
    assert course(**{**ill, **SHORT[few]}).is_short
    assert not course(**ill).is_short


def test_an_illness_begins_at_the_last_row_of_health():
    grown = course(grad_norm=np.r_[np.full(20, 1.0), np.geomspace(20, 1e8, 20)])
    (finding,) = learning.exploding(grown)
    assert finding.since == 20_000
    zero = course(**ILL["learning_rate_zero"][0])
    (finding,) = learning.learning_rate_zero(zero)
    assert finding.since == 20_000
    (finding,) = learning.lost(course(**ILL["lost"][0]))
    assert finding.since == 30_000
    (finding,) = learning.frozen_target(course(**ILL["frozen_target"][0]))
    assert finding.since == 0


def test_lengths_of_episodes_come_from_frames_and_episodes():
    assert course().episode_lengths() == pytest.approx(np.full(10, 100.0))
    assert len(course(epi=np.zeros(R)).episode_lengths()) == 0
    rows = course().rows
    one_row = course()._replace(rows=Rows(rows.columns, rows.values[:, :1]))
    assert len(one_row.episode_lengths()) == 0
