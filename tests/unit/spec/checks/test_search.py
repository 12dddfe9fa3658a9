"""What a search cannot do, though each of its keys is right by itself."""

import pytest

from slm_lab.spec.parse import parse
from slm_lab.spec.search import SAMPLERS, dimensions, extremes
from tests.support import ppo

GAMMA = "agent.algorithm.gamma"
RATE = "agent.net.optim_spec.lr"
UNIFORM = {f"{GAMMA}__uniform": [0.9, 0.99]}
START = "agent.algorithm.entropy_coef_spec.start_val"
SHARED = {"meta__distributed": "shared"}


def problems(search=UNIFORM, **changes):
    return [str(problem) for problem in parse("small", ppo(search=search, **changes)).problems]


def scheduler(name, **args):
    return {"meta__search_scheduler": {"name": name, **args}}


def told(search=UNIFORM, **changes):
    """The only problem, as its path with the value, and its message."""
    (problem,) = problems(search, **changes)
    path, _, message = problem.partition(": ")
    return path, message


def test_without_a_search_its_settings_do_not_hinder_training():
    raw = ppo(meta__search_alg="optuna", meta__max_trial=1, **scheduler("pbt"))
    assert not parse("small", raw).problems


@pytest.mark.parametrize("alg", ["optuna", "hyperopt"])
def test_searchers_have_no_grid(alg):
    path, message = told({f"{GAMMA}__grid_search": [0.9, 0.99]}, meta__search_alg=alg)
    assert path == f"search.{GAMMA}__grid_search"
    assert message == f"{alg} has no grid_search; use choice, or search_alg random"


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
UNKNOWN = {
    "random": set(),
    "optuna": {"normal", "randn", "qrandn", "qloguniform", "qlograndint"},
    "hyperopt": set(),
}


def test_every_sampler_is_tried_here():
    assert {*ARGUMENTS, *OF_INTEGERS} == set(SAMPLERS)


def key_of(sampler):
    args = ARGUMENTS | OF_INTEGERS
    key = GAMMA if sampler in ARGUMENTS else "agent.algorithm.training_epoch"
    return f"{key}__{sampler}", args[sampler]


@pytest.mark.parametrize("alg", UNKNOWN)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_what_an_engine_cannot_draw_is_refused_and_nothing_else(alg, sampler):
    key, args = key_of(sampler)
    found = problems({key: args}, meta__search_alg=alg)
    if sampler not in UNKNOWN[alg]:
        assert found == []
        return
    instead = "use uniform or loguniform, or search_alg random"
    assert found == [f"search.{key}: {alg} has no {sampler}; {instead}"]


@pytest.mark.parametrize("alg", ["optuna", "hyperopt"])
@pytest.mark.parametrize("name", ["hyperband", "pbt"])
def test_what_has_to_know_all_trials_takes_no_engine_that_learns(alg, name):
    path, message = told(meta__search_alg=alg, meta__max_trial=4, **scheduler(name))
    assert path == f"meta.search_alg = '{alg}'"
    assert message.startswith(f"must be random with search_scheduler {name}, which needs all ")


@pytest.mark.parametrize("alg", ["random", "optuna", "hyperopt"])
@pytest.mark.parametrize("name", ["asha", "median_stopping"])
def test_what_judges_trials_as_they_come_takes_any_engine(alg, name):
    assert problems(meta__search_alg=alg, **scheduler(name)) == []


@pytest.mark.parametrize("name", ["asha", "hyperband", "median_stopping", "pbt"])
def test_runs_that_follow_one_another_cannot_be_compared_while_they_run(name):
    raw = {**SHARED, "meta__max_session": 2, "meta__max_trial": 4}
    assert problems(**raw, **scheduler(name)) == []
    assert problems(**raw, meta__max_run=2) == []
    path, message = told(**raw, meta__max_run=2, **scheduler(name))
    assert path == "meta.max_run = 2"
    assert message.startswith("must be 1 beside search_scheduler")
    assert message.endswith("meta.confirm repeats the best")


BUDGETED = [
    ("asha", "grace_period"),
    ("asha", "max_t"),
    ("hyperband", "grace_period"),
    ("hyperband", "max_t"),
    ("median_stopping", "grace_period"),
    ("pbt", "perturbation_interval"),
]


@pytest.mark.parametrize(("name", "key"), BUDGETED)
def test_frames_of_a_scheduler_are_within_the_budget(name, key):
    assert problems(meta__max_trial=4, **scheduler(name, **{key: 1000})) == []
    path, message = told(meta__max_trial=4, **scheduler(name, **{key: 1001}))
    assert path == f"meta.search_scheduler.{key} = 1001.0"
    assert message == "must be <= env.max_frame (1000)"


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_nothing_is_spared_for_longer_than_it_may_run(name):
    assert problems(**scheduler(name, grace_period=500, max_t=500)) == []
    path, message = told(**scheduler(name, grace_period=500, max_t=400))
    assert path == "meta.search_scheduler.grace_period = 500.0"
    assert message == "must be <= max_t (400)"


def pbt(search, **changes):
    return problems(search, **{"meta__max_trial": 4, **scheduler("pbt"), **changes})


def test_a_population_has_at_least_two():
    assert pbt(UNIFORM, meta__max_trial=2) == []
    (problem,) = pbt(UNIFORM, meta__max_trial=1)
    assert problem.startswith("meta.max_trial = 1: must be >= 2 with search_scheduler pbt")


FIXED = {
    "agent.net.hid_layers__choice": [[8], [16]],
    "agent.net.hid_layers_activation__choice": ["tanh", "relu"],
    "agent.net.optim_spec.name__choice": ["GlobalAdam", "GlobalRMSprop"],
    "agent.algorithm.time_horizon__choice": [16, 32],
    "agent.algorithm.clip_eps_spec.name__choice": ["no_decay", "linear_decay"],
    "env.num_envs__choice": [4, 8],
    "meta.log_frequency__choice": [100, 200],
}


@pytest.mark.parametrize("key", FIXED)
def test_what_gives_an_agent_another_shape_cannot_change_while_it_trains(key):
    (problem,) = pbt({key: FIXED[key]})
    assert problem.startswith(f"search.{key}: cannot change while an agent trains")
    assert problem.endswith("as search_scheduler pbt requires")
    assert problems({key: FIXED[key]}, **scheduler("asha")) == []


CHANGING = {
    f"{GAMMA}__uniform": [0.9, 0.99],
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


@pytest.mark.parametrize("key", CHANGING)
def test_what_leaves_an_agent_its_shape_may_change_while_it_trains(key):
    assert pbt({key: CHANGING[key]}) == []


def test_all_problems_of_a_search_are_told_at_once():
    search = {"agent.net.hid_layers__grid_search": [[8], [16]], **UNIFORM}
    found = pbt(search, meta__search_alg="optuna", meta__max_trial=1)
    assert [problem.split(":")[0].split(" =")[0] for problem in found] == [
        "search.agent.net.hid_layers__grid_search",
        "meta.search_alg",
        "meta.max_trial",
        "search.agent.net.hid_layers__grid_search",
    ]


def test_a_key_is_varied_once():
    twice = {
        "agent": {"algorithm": {"gamma__uniform": [0.9, 0.99]}},
        "agent.algorithm.gamma__choice": [0.9, 0.99],
    }
    parsed = parse("s", ppo(search=twice))
    (problem,) = parsed.problems
    assert problem.path == "search.agent.algorithm.gamma__choice"
    assert "search.agent.algorithm.gamma__uniform" in problem.message


def test_a_key_that_is_given_twice_is_said_to_be_nested_once():
    key = "agent.algorithm.gamma__uniform"
    twice = {"agent": {"algorithm": {"gamma__uniform": [0.9, 0.99]}}, key: [0.8, 0.9]}
    path, message = told(twice)
    assert path.startswith(f"search.{key} = ")
    assert message == "is given twice, once nested; keep one"


BLOCK = "agent.net.optim_spec__choice"
BLOCKS = [{"name": "GlobalAdam", "lr": 0.01}, {"name": "GlobalRMSprop", "lr": 0.01}]


@pytest.mark.parametrize("first", [f"{RATE}__uniform", BLOCK])
def test_a_block_is_not_varied_beside_a_key_of_it(first):
    search = {f"{RATE}__uniform": [0.001, 0.01], BLOCK: BLOCKS}
    (second,) = (key for key in search if key != first)
    path, message = told({first: search[first], second: search[second]})
    assert path.startswith(f"search.{second} = ")
    assert f"search.{first} " in message
    assert message.endswith("keep one")


def test_keys_of_which_one_only_begins_like_the_other_have_nothing_to_do_with_each_other():
    layers = "agent.net.hid_layers"
    assert not problems({f"{layers}__choice": [[8]], f"{layers}_activation__choice": ["relu"]})


@pytest.mark.parametrize(
    "search", [{"agent": {"net": {}}}, {"agent.net": {}}, {"agent": {"net": {}}, **UNIFORM}]
)
def test_a_block_of_a_search_holds_a_key(search):
    assert told(search) == ("search.agent.net = {}", "holds no key to vary")


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


@pytest.mark.parametrize("key", OF_THE_SEARCH)
def test_what_means_nothing_to_a_trial_is_not_searched_over(key):
    path, message = told({key: OF_THE_SEARCH[key]})
    assert path.startswith(f"search.{key} = ")
    assert "cannot be searched over: " in message


def test_a_seed_is_said_to_be_drawn_for_each_trial():
    _, message = told({"meta.random_seed__choice": [0, 1]})
    assert "meta.max_session repeats each trial" in message


@pytest.mark.parametrize(
    "args",
    [
        {"uniform": [1, 8]},
        {"uniform": [1, 9]},
        {"loguniform": [1, 4]},
        {"quniform": [1, 8, 0.5]},
        {"qloguniform": [1, 8, 0.5]},
        {"normal": [8, 2]},
        {"randn": [8, 2]},
        {"qrandn": [8, 2, 0.5]},
    ],
)
def test_fractions_are_not_drawn_for_a_whole_number(args):
    ((sampler, numbers),) = args.items()
    path, message = told({f"env.num_envs__{sampler}": numbers})
    assert path.startswith(f"search.env.num_envs__{sampler} = ")
    assert message == "must be a whole number"


@pytest.mark.parametrize(
    "args",
    [
        {"randint": [1, 8]},
        {"quniform": [2, 8, 2]},
        {"qloguniform": [2, 8, 2]},
        {"qrandint": [2, 8, 2]},
        {"lograndint": [1, 8]},
        {"qrandn": [16, 4, 2]},
    ],
)
def test_whole_numbers_are_drawn_for_one(args):
    ((sampler, numbers),) = args.items()
    assert problems({f"env.num_envs__{sampler}": numbers}) == []


@pytest.mark.parametrize(
    ("args", "upper"), [([1, 8], 7), ([1, 8, 1], 7), ([2, 8, 2], 8), ([2, 8, 2.0], 8)]
)
def test_the_upper_end_of_whole_numbers_is_tried_where_it_is_drawn(args, upper):
    (dimension,) = dimensions({"a.x__qrandint": args})
    assert extremes(dimension) == [args[0], upper]


@pytest.mark.parametrize("lower", [-1.7976931348623157e308, -9007199254740993.0, 2.0**53 + 2])
def test_a_range_of_numbers_so_large_that_all_are_whole_is_checked(lower):
    """Halving towards an odd one of them never arrives."""
    (dimension,) = dimensions({"a.x__uniform": [lower, 2.0**53 + 4]})
    first, last, between = extremes(dimension)
    assert (first, last) == (lower, 2.0**53 + 4)
    assert first <= between < last


@pytest.mark.parametrize(("sd", "fits"), [(0.001, True), (0.02, False)])
def test_a_deviation_from_the_mean_counts_as_drawn(sd, fits):
    assert (not problems({f"{GAMMA}__normal": [0.99, sd]})) is fits


def test_a_quantum_too_small_to_count_in_is_refused():
    _, message = told({f"{GAMMA}__quniform": [0.1, 1e300, 1e-300]})
    assert message == "q (1e-300) is too small for such numbers"


@pytest.mark.parametrize(("gpu", "fits"), [(0.25, True), (1, True), (2, True), (1.5, False)])
def test_a_trial_has_a_share_of_a_gpu_or_whole_ones(gpu, fits):
    parsed = parse("s", ppo(meta__search_resources={"gpu": gpu}))
    assert (not parsed.problems) is fits
