"""What a search cannot do, though each of its keys is valid alone."""

import pytest

from slm_lab.spec.search import SAMPLERS, dimensions, extremes
from tests.support import ppo
from tests.unit.spec.problems import assert_lines, assert_problem, messages
from tests.unit.spec.spec_data import changed

GAMMA = "agent.algorithm.gamma"
RATE = "agent.net.optim_spec.lr"
UNIFORM = {f"{GAMMA}__uniform": [0.9, 0.99]}
START = "agent.algorithm.entropy_coef_spec.start_val"
SEARCHERS = ("random", "optuna", "hyperopt")
SCHEDULERS = ("asha", "hyperband", "median_stopping", "pbt")


def searching(search=UNIFORM, **meta):
    """A small spec with this search block and these keys of `meta`."""
    return changed(
        ppo(), {"search": search, **{f"meta.{k}": v for k, v in meta.items()}}
    )


def decaying(search):
    """A search over a schedule that ends after 500 frames."""
    schedule = {
        "name": "linear_decay",
        "start_val": 0.01,
        "end_val": 0.001,
        "start_step": 0,
        "end_step": 500,
    }
    return changed(searching(search), agent__algorithm__entropy_coef_spec=schedule)


def scheduled(name, search=UNIFORM, max_trial=4, **args):
    """A search with this scheduler and its arguments."""
    block = {"name": name, **args}
    return searching(search, search_scheduler=block, max_trial=max_trial)


def test_settings_of_a_search_do_not_hinder_a_training_without_one():
    raw = scheduled("pbt", max_trial=1)
    del raw["search"]
    assert_problem(changed(raw, meta__search_alg="optuna"), None)


ARGUMENTS = {
    "uniform": [0.5, 0.99],
    "quniform": [0.5, 0.75, 0.25],
    "loguniform": [0.5, 0.99],
    "qloguniform": [0.5, 0.75, 0.25],
    "normal": [0.9, 0.01],
    "randn": [0.9, 0.01],
    "qrandn": [0.9, 0.01, 0.01],
}
OF_INTEGERS = {
    "randint": [1, 4],
    "qrandint": [2, 8, 2],
    "lograndint": [1, 4],
    "qlograndint": [2, 8, 2],
}
UNKNOWN = {"optuna": {"normal", "randn", "qrandn", "qloguniform", "qlograndint"}}


def test_every_sampler_is_tried_here():
    assert {*ARGUMENTS, *OF_INTEGERS} == set(SAMPLERS)


@pytest.mark.parametrize("alg", SEARCHERS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_only_the_samplers_that_a_searcher_lacks_are_refused(alg, sampler):
    path = "agent.algorithm.training_epoch"
    if sampler in ARGUMENTS:
        path = GAMMA
    key = f"{path}__{sampler}"
    raw = searching({key: (ARGUMENTS | OF_INTEGERS)[sampler]}, search_alg=alg)
    instead = "use uniform or loguniform, or search_alg random"
    refused = f"search.{key}: {alg} has no {sampler}; {instead}"
    assert_problem(raw, refused if sampler in UNKNOWN.get(alg, ()) else None)


@pytest.mark.parametrize("alg", SEARCHERS)
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_that_needs_all_trials_refuses_an_adaptive_searcher(alg, name):
    refused = (
        f"meta.search_alg = '{alg}': must be random with search_scheduler {name}, "
        "which needs"
    )
    fits = alg == "random" or name in ("asha", "median_stopping")
    assert_problem(
        changed(scheduled(name), meta__search_alg=alg), None if fits else refused
    )


@pytest.mark.parametrize("name", SCHEDULERS)
def test_runs_in_sequence_cannot_be_compared_while_they_run(name):
    together = {"meta.distributed": "shared", "meta.max_session": 2}
    assert_problem(changed(scheduled(name), together), None)
    assert_problem(changed(searching(), {**together, "meta.max_run": 2}), None)
    assert_problem(
        changed(scheduled(name), {**together, "meta.max_run": 2}),
        "meta.max_run = 2: must be 1 beside search_scheduler … meta.confirm repeats "
        "the best",
    )


# What gives an agent another shape cannot change while it trains.
FIXED = {
    "agent.net.hid_layers__choice": [[8], [16]],
    "agent.net.hid_layers_activation__choice": ["tanh", "relu"],
    "agent.net.optim_spec.name__choice": ["GlobalAdam", "GlobalRMSprop"],
    "agent.algorithm.time_horizon__choice": [16, 32],
    "agent.algorithm.clip_eps_spec.name__choice": ["no_decay", "linear_decay"],
    "env.num_envs__choice": [4, 8],
    "meta.log_frequency__choice": [100, 200],
}
CHANGING = {
    **UNIFORM,
    "agent.algorithm.lam__uniform": [0.9, 0.99],
    f"{START}__uniform": [0.01, 0.1],
    "agent.algorithm.entropy_coef_spec.end_val__uniform": [0.0, 0.005],
    "agent.algorithm.clip_eps_spec.start_val__choice": [0.2, 0.3],
    "agent.algorithm.val_loss_coef__uniform": [0.1, 1.0],
    "agent.algorithm.minibatch_size__choice": [16, 32, 64],
    "agent.algorithm.training_epoch__randint": [1, 8],
    f"{RATE}__loguniform": [1e-4, 1e-2],
    "agent.net.clip_grad_val__choice": [0.1, 0.5, None],
    "env.clip_reward__choice": [None, 1.0],
}
# A trial has no use for these.
OF_THE_SEARCH = {
    "meta.max_trial__choice": [1, 2],
    "meta.search_alg__choice": ["random", "optuna"],
    "meta.search_scheduler__choice": [None, {"name": "asha"}],
    "meta.search_scheduler.grace_period__uniform": [10, 100],
    "meta.search_resources.cpu__choice": [1, 2],
    "meta.confirm.top__choice": [1, 2],
    "meta.random_seed__choice": [0, 1, 2],
    "meta.cluster__choice": [None, "auto"],
    "search.agent.algorithm.gamma__choice": [0.9, 0.99],
    "search__choice": [{}, None],
    "name__choice": ["a", "b"],
}
NESTED = {"agent": {"algorithm": {"gamma__uniform": [0.9, 0.99]}}}
BLOCK = {
    "agent.net.optim_spec__choice": [
        {"name": "GlobalAdam", "lr": 0.01},
        {"name": "GlobalRMSprop", "lr": 0.01},
    ]
}
KEY_OF_BLOCK = {f"{RATE}__uniform": [0.001, 0.01]}
LAYERS = "agent.net.hid_layers"
FRACTIONS = {
    "uniform": [1, 9],
    "loguniform": [1, 4],
    "quniform": [1, 8, 0.5],
    "qloguniform": [1, 8, 0.5],
    "normal": [8, 2],
    "randn": [8, 2],
    "qrandn": [8, 2, 0.5],
}
WHOLE = {
    "randint": [1, 8],
    "quniform": [2, 8, 2],
    "qloguniform": [2, 8, 2],
    "qrandint": [2, 8, 2],
    "lograndint": [1, 8],
    "qrandn": [16, 4, 2],
}
BUDGETED = [
    ("asha", "grace_period"),
    ("asha", "max_t"),
    ("hyperband", "grace_period"),
    ("hyperband", "max_t"),
    ("median_stopping", "grace_period"),
    ("pbt", "perturbation_interval"),
]
STARTS = "agent.algorithm.entropy_coef_spec.start_step__choice"
ENDS = "agent.algorithm.entropy_coef_spec.end_step__choice"
TWICE = "is given twice, once nested; keep one"
HOLDS_NONE = "search.agent.net = {}: holds no key to vary"

ROWS = [
    *(
        (
            searching({f"{GAMMA}__grid_search": [0.9, 0.99]}, search_alg=alg),
            f"search.{GAMMA}__grid_search: {alg} has no grid_search; use choice, or "
            "search_alg random",
        )
        for alg in SEARCHERS[1:]
    ),
    # Frames of a scheduler are within the budget, and its grace period within max_t.
    *((scheduled(name, **{key: 1000}), None) for name, key in BUDGETED),
    *(
        (
            scheduled(name, **{key: 1001}),
            f"meta.search_scheduler.{key} = 1001.0: must be <= env.max_frame (1000)",
        )
        for name, key in BUDGETED
    ),
    *((scheduled(name, grace_period=500, max_t=500), None) for name in SCHEDULERS[:2]),
    *(
        (
            scheduled(name, grace_period=500, max_t=400),
            "meta.search_scheduler.grace_period = 500.0: must be <= max_t (400)",
        )
        for name in SCHEDULERS[:2]
    ),
    # A population has at least two.
    (scheduled("pbt", max_trial=2), None),
    (
        scheduled("pbt", max_trial=1),
        "meta.max_trial = 1: must be >= 2 with search_scheduler pbt",
    ),
    *(
        (
            scheduled("pbt", {key: args}),
            f"search.{key}: cannot change while an agent trains … pbt",
        )
        for key, args in FIXED.items()
    ),
    *((scheduled("asha", {key: args}), None) for key, args in FIXED.items()),
    *((scheduled("pbt", {key: args}), None) for key, args in CHANGING.items()),
    # A key is varied once.
    (
        searching({**NESTED, f"{GAMMA}__choice": [0.9, 0.99]}),
        f"search.{GAMMA}__choice = …: … search.{GAMMA}__uniform",
    ),
    (
        searching({**NESTED, f"{GAMMA}__uniform": [0.8, 0.9]}),
        f"search.{GAMMA}__uniform = …{TWICE}",
    ),
    (
        searching({**BLOCK, **KEY_OF_BLOCK}),
        f"search.{RATE}__uniform = …: … search.agent.net.optim_spec__choice … keep one",
    ),
    (
        searching({**KEY_OF_BLOCK, **BLOCK}),
        f"search.agent.net.optim_spec__choice = …: … search.{RATE}__uniform … keep one",
    ),
    (
        searching(
            {f"{LAYERS}__choice": [[8]], f"{LAYERS}_activation__choice": ["relu"]}
        ),
        None,
    ),
    # A value that does not fit the spec may fit whatever another key of its block is.
    (decaying({STARTS: [600, 700], ENDS: [800, 900]}), None),
    (decaying({ENDS: [800, 900], STARTS: [600, 800]}), None),
    (
        decaying({STARTS: [600, 850], ENDS: [800, 900]}),
        f"search.{STARTS} = 850: must be <= end_step (500)",
    ),
    (
        decaying({STARTS: [600], f"{RATE}__uniform": [1e-4, 1e-3]}),
        f"search.{STARTS} = 600: must be <= end_step (500)",
    ),
    # A block of a search holds a key.
    *(
        (searching(search), HOLDS_NONE)
        for search in (
            {"agent": {"net": {}}},
            {"agent.net": {}},
            {"agent": {"net": {}}, **UNIFORM},
        )
    ),
    *(
        (searching({key: args}), f"search.{key} = …: … cannot be searched over: ")
        for key, args in OF_THE_SEARCH.items()
    ),
    (
        searching({"meta.random_seed__choice": [0, 1]}),
        "…meta.max_session repeats each trial",
    ),
    # A whole number is drawn from whole numbers.
    *(
        (
            searching({f"env.num_envs__{sampler}": args}),
            f"search.env.num_envs__{sampler} = …: must be a whole number",
        )
        for sampler, args in FRACTIONS.items()
    ),
    *(
        (searching({f"env.num_envs__{sampler}": args}), None)
        for sampler, args in WHOLE.items()
    ),
    # A deviation from the mean counts as drawn.
    (searching({f"{GAMMA}__normal": [0.99, 0.001]}), None),
    (searching({f"{GAMMA}__normal": [0.99, 0.02]}), f"search.{GAMMA}__normal = "),
    (
        searching({f"{GAMMA}__quniform": [0.1, 1e300, 1e-300]}),
        "…: q (1e-300) is too small for such numbers",
    ),
    # A trial has a share of a GPU, or whole ones.
    *((searching(search_resources={"gpu": gpu}), None) for gpu in (0.25, 1, 2)),
    (searching(search_resources={"gpu": 1.5}), "meta.search_resources.gpu = 1.5: "),
]


@pytest.mark.parametrize(("raw", "problem"), ROWS)
def test_an_impossible_search_is_refused(raw, problem):
    assert_problem(raw, problem)


def test_a_key_of_a_block_that_the_file_leaves_out_is_searched_over():
    raw = searching({f"{RATE}__loguniform": [1e-4, 1e-2]})
    del raw["agent"]["net"]["optim_spec"]
    assert_problem(raw, None)


def test_a_net_that_would_not_accept_the_other_keys_is_not_searched_over():
    raw = searching({"agent.net.type__choice": ["MLPNet", "RecurrentNet"]})
    assert_problem(raw, "search.agent.net.type__choice = …hid_layers")


def test_all_problems_of_a_search_are_reported_at_once():
    raw = scheduled(
        "pbt", {f"{LAYERS}__grid_search": [[8], [16]], **UNIFORM}, max_trial=1
    )
    assert_lines(
        messages(changed(raw, meta__search_alg="optuna")),
        [
            f"search.{LAYERS}__grid_search: ",
            "meta.search_alg = ",
            "meta.max_trial = ",
            f"search.{LAYERS}__grid_search: ",
        ],
    )


@pytest.mark.parametrize(
    ("args", "upper"), [([1, 8], 7), ([1, 8, 1], 7), ([2, 8, 2], 8), ([2, 8, 2.0], 8)]
)
def test_the_upper_end_of_whole_numbers_is_tried_if_it_is_drawn(args, upper):
    (dimension,) = dimensions({"a.x__qrandint": args})
    assert extremes(dimension) == [args[0], upper]


@pytest.mark.parametrize(
    "lower", [-1.7976931348623157e308, -9007199254740993.0, 2.0**53 + 2]
)
def test_a_range_of_numbers_so_large_that_all_are_whole_is_checked(lower):
    """Halving towards an odd one of them never arrives."""
    (dimension,) = dimensions({"a.x__uniform": [lower, 2.0**53 + 4]})
    first, last, between = extremes(dimension)
    assert (first, last) == (lower, 2.0**53 + 4)
    assert first <= between < last
