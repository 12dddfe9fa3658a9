"""Runs in several environments: side by side, or joined by normalised returns."""

from collections.abc import Mapping, Sequence

import numpy as np

from slm_lab.analysis.overlay.overlay import Seeds
from slm_lab.core.errors import UsageError
from slm_lab.experiment.plot.runs import ReadTrial
from slm_lab.storage.maybe_damaged import trial_metrics


def normalised(trial: ReadTrial, scores: Mapping[str, float]) -> ReadTrial:
    """The Trial in units in which the Random agent's return is 0, and the score of its environment
    1. Raises UsageError if one of them is unknown."""
    found, env = trial.found, trial.env
    random = trial_metrics(found.run_dir, found.trial).get("random_return")
    score = scores.get(env, scores.get(""))
    if score is None:
        raise UsageError(f"--normalise: no score of {env}; add --normalise {env}=SCORE")
    if random is None or score == random:
        why = "not known until a run has ended" if random is None else "the score"
        raise UsageError(f"--normalise: the Random agent's return in {env} is {why}")
    return trial.scaled(random, score - random)


def by_environment(envs: Sequence[str], curves: Sequence[Seeds]) -> dict[str, list[Seeds]]:
    """The curves of each environment. Raises UsageError if two of them have one label."""
    found: dict[str, dict[str, Seeds]] = {}
    for env, curve in zip(envs, curves, strict=True):
        if found.setdefault(env, {}).setdefault(curve.label, curve) is not curve:
            raise UsageError(f"--label {curve.label}: names two curves of {env}")
    return {env: list(each.values()) for env, each in found.items()}


def missing(panels: Mapping[str, Sequence[Seeds]]) -> list[str]:
    """A note for each method that some environments have no curve of."""
    envs_of: dict[str, list[str]] = {}
    for env, curves in panels.items():
        for curve in curves:
            envs_of.setdefault(curve.label, []).append(env)
    return [
        f"{label}: only in {', '.join(envs)}; curves with one label are one method in all "
        "environments, --label names them"
        for label, envs in envs_of.items()
        if len(envs) < len(panels)
    ]


def joined(panels: Mapping[str, Sequence[Seeds]]) -> list[Seeds]:
    """One curve for each label, of the seeds in all environments."""
    tasks_of: dict[str, list[Seeds]] = {}
    for curve in (curve for curves in panels.values() for curve in curves):
        tasks_of.setdefault(curve.label, []).append(curve)
    return [
        Seeds(
            label,
            tuple(line for each in tasks for line in each.lines),
            np.concatenate([each.final_return for each in tasks]),
            np.concatenate([each.frames for each in tasks]),
            sum(each.planned for each in tasks),
            tuple(len(each.lines) for each in tasks),
        )
        for label, tasks in tasks_of.items()
    ]
