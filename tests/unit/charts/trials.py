"""Small searches for the tests of this folder."""

import numpy as np

from slm_lab.charts.search_summary import SearchSummary
from slm_lab.metrics.trial_metrics import TRIAL_METRICS
from slm_lab.metrics.trial_state import Status, TrialState
from slm_lab.spec.search import LISTS, Dimension

BUDGET = 10_000


def varied(path, sampler, values=()):
    return Dimension(f"{path}__{sampler}", path, sampler, values)


VARIABLES = (
    varied("agent.net.optim_spec.lr", "loguniform"),
    varied("agent.algorithm.gamma", "uniform"),
    varied("agent.net.hid_layers", "choice", ([64, 64], [256, 128], [400])),
    varied("agent.algorithm.minibatch_size", "choice", (128, 32, 64)),
    varied("agent.algorithm.training_epoch", "randint"),
    varied("agent.net.init_fn", "grid_search", ("orthogonal_", None, True)),
    varied(
        "agent.net.optim_spec", "choice", ({"name": "Adam", "lr": 0.1}, {"name": "SGD"})
    ),
    varied("env.num_envs", "qlograndint"),
)


def trial(number=0, score=1.0, status="finished", *, frame=None, error=None, **point):
    """The state of a Trial with this score, from which its metrics are derived."""
    spent = (
        (BUDGET if status == "finished" else BUDGET // 2) if frame is None else frame
    )
    metrics = (
        {}
        if score is None
        else {name: score / (i + 1) for i, name in enumerate(TRIAL_METRICS)}
    )
    more = {"seconds": spent / 1000, "metrics": metrics, "error": error}
    return TrialState(number, point, Status(status), spent, score, **more)


def searched(variables, points, scores, status="finished"):
    """A search whose Trials had these points, lists of values, and these scores."""
    paths = [variable.path for variable in variables]
    statuses = [status] * len(scores) if isinstance(status, str) else status
    trials = tuple(
        trial(i, score, status_of, **dict(zip(paths, point, strict=True)))
        for i, (point, score, status_of) in enumerate(
            zip(points, scores, statuses, strict=True)
        )
    )
    return SearchSummary(
        "ppo_cartpole", "PPO on CartPole-v1", tuple(variables), trials, BUDGET
    )


def drawn(trials, variables=4, *, seed=0, status="finished"):
    """A search over the first of VARIABLES, drawn at random, in which lr is what
    matters."""
    generator = np.random.default_rng(seed)
    searched_over = VARIABLES[:variables]
    points = [
        [_draw(variable, generator) for variable in searched_over]
        for _ in range(trials)
    ]
    scores = [
        -((np.log10(point[0]) + 3) ** 2) + 0.1 * generator.normal() for point in points
    ]
    return searched(searched_over, points, [float(score) for score in scores], status)


def _draw(variable, generator):
    if variable.sampler in LISTS:
        return variable.args[generator.integers(len(variable.args))]
    if "int" in variable.sampler:
        return int(generator.integers(1, 9))
    low, high = (-5, -2) if "log" in variable.sampler else (0.9, 0.999)
    value = generator.uniform(low, high)
    return float(10**value if "log" in variable.sampler else value)
