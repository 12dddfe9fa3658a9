"""Runs in several environments: side by side, or joined by normalised returns."""

from collections.abc import Mapping, Sequence

import numpy as np

from slm_lab.charts.overlay import Seeds
from slm_lab.core.errors import UsageError
from slm_lab.experiment.plot.trials import ReadTrial
from slm_lab.storage.maybe_damaged import trial_metrics


def normalised(
    trials: Sequence[ReadTrial], scores: Mapping[str, float]
) -> list[ReadTrial]:
    """The Trials in units in which the Random agent's return is 0, and the score of
    their environment 1; the score of "" is that of the only one. Raises UsageError if
    one is unknown."""
    envs = list(dict.fromkeys(trial.env for trial in trials))
    scores = {
        env or envs[0]: score for env, score in scores.items() if env or len(envs) == 1
    }
    if unknown := [env for env in scores if env not in envs]:
        known = ", ".join(envs)
        raise UsageError(
            f"--normalise {unknown[0]}=…: no run is in it; they are in {known}"
        )
    zeros = {}
    for env in envs:
        runs = [each.found for each in trials if each.env == env]
        every = (
            trial_metrics(each.run_dir, each.trial).get("random_return")
            for each in runs
        )
        # known from the end on
        random = next((each for each in every if each is not None), None)
        if env not in scores:
            raise UsageError(
                f"--normalise: no score of {env}; add --normalise {env}=SCORE"
            )
        if random is None or scores[env] == random:
            why = "not known until a run has ended" if random is None else "the score"
            raise UsageError(
                f"--normalise: the Random agent's return in {env} is {why}"
            )
        zeros[env] = random
    return [
        each.scaled(zeros[each.env], scores[each.env] - zeros[each.env])
        for each in trials
    ]


def by_environment(
    envs: Sequence[str], curves: Sequence[Seeds]
) -> dict[str, list[Seeds]]:
    """The curves of each environment. Raises UsageError if two of them have one
    label."""
    found: dict[str, dict[str, Seeds]] = {}
    for env, curve in zip(envs, curves, strict=True):
        if found.setdefault(env, {}).setdefault(curve.label, curve) is not curve:
            raise UsageError(f"--label {curve.label}: names two curves of {env}")
    return {env: list(each.values()) for env, each in found.items()}


def missing(panels: Mapping[str, Sequence[Seeds]]) -> list[str]:
    """A note for each method that some environments have no curve of."""
    return [
        f"{label}: only in {', '.join(tasks)}; curves with one label are one method "
        "in all environments, --label names them"
        for label, tasks in _by_label(panels).items()
        if len(tasks) < len(panels)
    ]


def joined(panels: Mapping[str, Sequence[Seeds]]) -> list[Seeds]:
    """One curve for each label, of the seeds in all environments."""
    return [
        Seeds(
            label,
            tuple(line for each in tasks.values() for line in each.lines),
            np.concatenate([each.final_return for each in tasks.values()]),
            np.concatenate([each.frames for each in tasks.values()]),
            sum(each.planned for each in tasks.values()),
            tuple(len(each.lines) for each in tasks.values()),
        )
        for label, tasks in _by_label(panels).items()
    ]


def _by_label(panels: Mapping[str, Sequence[Seeds]]) -> dict[str, dict[str, Seeds]]:
    found: dict[str, dict[str, Seeds]] = {}
    for env, curves in panels.items():
        for curve in curves:
            found.setdefault(curve.label, {})[env] = curve
    return found
