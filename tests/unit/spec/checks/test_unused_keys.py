"""Keys that change nothing: harmless ones are reported in one line, misleading ones
refused."""

import logging

import pytest

from slm_lab.spec.load import load_spec, parse_spec, spec_names
from slm_lab.spec.parse import parse
from slm_lab.spec.read import read_file, shipped_files
from tests.support import actor_critic, ppo, pqn, q_learning, reinforce, sarsa, soft
from tests.unit.spec.problems import assert_lines, assert_problem
from tests.unit.spec.spec_data import OF_AGENT, changed, fillings

MOVING = {"update_type": "polyak", "update_frequency": 8, "polyak_coef": 0.01}
DEFAULTS = {
    "shared": False,
    "use_same_optim": False,
    "update_type": "replace",
    "update_frequency": 1,
    "polyak_coef": 0.0,
}
WITHOUT_TARGETS = {
    "PPO": ppo(),
    "ActorCritic": actor_critic(),
    "Reinforce": reinforce(),
    "SARSA": sarsa(),
    "PQN": pqn(),
    "VanillaDQN": q_learning("VanillaDQN", agent__net__update_frequency=1),
    "CrossQ": soft("CrossQ"),
}
WITH_TARGETS = {
    "DQN": q_learning("DQN"),
    "DoubleDQN": q_learning("DoubleDQN"),
    "SoftActorCritic": soft("SoftActorCritic"),
    "REDQ": soft("REDQ"),
    "TQC": soft("TQC"),
    "TD3": soft("TD3"),
}
EVERY = {**WITHOUT_TARGETS, **WITH_TARGETS}
ONE_NET = ("Reinforce", "SARSA", "PQN", "VanillaDQN", "DQN", "DoubleDQN")
SOFT = WITH_TARGETS["SoftActorCritic"]
DQN = WITH_TARGETS["DQN"]
CRITIC = {"type": "MLPNet", "hid_layers": [8]}
ACTORS = {"meta.distributed": "actor_learner"}
FLOW = "meta.actor_learner"
FREQUENCY = "algorithm.training_frequency"
ONCE = {FREQUENCY: 1, "algorithm.training_batch_iter": 1}
EXACT = {**ONCE, "algorithm.training_iter": 1, "algorithm.update_to_data": 0.25}
ALPHA_BOUNDS = {"algorithm.log_alpha_min": -5.0, "algorithm.log_alpha_max": 1.0}
OF_ACTORS = {
    "unroll_length": 64,
    "learn_queue": 2,
    "queue_size": 2,
    "correction": "vtrace",
    "publish_frequency": 2,
    "inference": "learner",
    "train_ratio": None,
    "serial": True,
}
OF_LEARNING = [
    *((k, v) for k, v in OF_ACTORS.items() if k != "correction"),
    ("train_ratio", 2.0),
]
DEFAULTS_OF_ACTORS = {
    "correction": "none",
    "train_ratio": "spec",
    "unroll_length": None,
}
STRONG = {"meta.distributed": "all_reduce", "meta.scale": "strong"}
SYNC = changed(ppo(), env__vectorization_mode="sync")
FOR_TWO = {"net.shared": True, "net.use_same_optim": True, "net.critic_init_std": 1.0}


def net(**keys):
    return {f"net.{key}": value for key, value in keys.items()}


def actors(**settings):
    return {**ACTORS, FLOW: settings}


def correction(name):
    return actors(correction={"name": name, "rho_bar": 2.0, "c_bar": 0.5})


# (spec, changes, keys without effect)
ROWS = [
    # Default values ask for nothing.
    *(
        (
            raw,
            {
                f"net.{key}": raw["agent"]["net"].get(key, value)
                for key, value in DEFAULTS.items()
            },
            [],
        )
        for raw in EVERY.values()
    ),
    # What moves target networks.
    *(
        (raw, net(**MOVING), [f"net.{key}" for key in MOVING])
        for raw in WITHOUT_TARGETS.values()
    ),
    *(
        (
            raw,
            net(**{**MOVING, "polyak_coef": 0.0}),
            ["net.update_type", "net.update_frequency"],
        )
        for raw in WITHOUT_TARGETS.values()
    ),
    *((raw, net(**MOVING), []) for raw in WITH_TARGETS.values()),
    (DQN, net(update_type="replace", polyak_coef=0.01), ["net.polyak_coef"]),
    # Targets follow the nets of the critic block, so the other block has no use for
    # these keys.
    (
        SOFT,
        {"critic_net": {**CRITIC, **MOVING}},
        ["net.update_type", "net.polyak_coef"],
    ),
    *(
        (
            EVERY["PPO"],
            {"critic_net": {**CRITIC, "gpu": gpu}},
            ["critic_net.gpu"] * bool(gpu),
        )
        for gpu in (False, True, "auto")
    ),
    # Gradient steps as CUDA graphs.
    *(
        (raw, net(cuda_graph=True, gpu="auto", **keys), [])
        for raw in (EVERY["PPO"], SOFT, DQN)
        for keys in ({}, {"optim_spec.name": "AdamW"})
    ),
    *(
        (raw, {**net(cuda_graph=True, gpu="auto"), **more}, ["net.cuda_graph"])
        for raw, more in (
            (EVERY["PPO"], net(gpu=False)),
            (EVERY["PPO"], net(**{"optim_spec.name": "NAdam"})),
            (EVERY["PPO"], net(critic_optim_spec={"name": "RMSprop", "lr": 0.01})),
            (EVERY["PPO"], {"meta.distributed": "all_reduce"}),
            (EVERY["PPO"], {"meta.distributed": "shared"}),
            (
                EVERY["PPO"],
                {"net": {"type": "RecurrentNet", "gpu": True, "cuda_graph": True}},
            ),
            (EVERY["ActorCritic"], {}),
            (EVERY["SARSA"], {}),
        )
    ),
    (EVERY["PPO"], {**net(cuda_graph=True, gpu="auto"), **ACTORS}, []),
    (DQN, {"memory.storage": "device", **net(gpu="auto")}, []),
    # The library of products on the CPU.
    *((SOFT, net(matmul="numpy", **keys), []) for keys in ({}, {"gpu": "auto"})),
    *(
        (SOFT, net(matmul="numpy", **keys), ["net.matmul"])
        for keys in ({"gpu": True}, {"precision": "bf16", "hid_layers": [8, 8]})
    ),
    (
        SOFT,
        {
            "critic_net": {
                **CRITIC,
                "matmul": "numpy",
                "precision": "bf16",
                "hid_layers": [8, 8],
            }
        },
        ["critic_net.matmul", "net.update_type", "net.polyak_coef"],
    ),
    # Half precision is for products between hidden layers.
    (SOFT, net(precision="bf16", hid_layers=[8]), ["net.precision"]),
    (SOFT, net(precision="bf16", hid_layers=[8], actor_hid_layers=[8, 8]), []),
    (DQN, {"memory.storage": "device"}, ["memory.storage"]),
    (
        EVERY["PPO"],
        {"critic_net": {**CRITIC, "cuda_graph": True}},
        ["critic_net.cuda_graph"],
    ),
    (
        SOFT,
        {
            "critic_net": {**CRITIC, **MOVING},
            "net": {**CRITIC, "actor_update_frequency": 3},
        },
        ["net.actor_update_frequency"],
    ),
    (SOFT, net(critic_update_frequency=3), []),
    (SOFT, net(actor_update_frequency=3), ["net.actor_update_frequency"]),
    (DQN, net(actor_update_frequency=32), []),
    (DQN, net(critic_update_frequency=3), ["net.critic_update_frequency"]),
    # What is for two nets.
    *((EVERY[name], FOR_TWO, [*FOR_TWO]) for name in ONE_NET),
    *(
        (
            raw,
            {
                **net(use_same_optim=True, update_type="replace", polyak_coef=0.0),
                "critic_net": CRITIC,
            },
            ["net.use_same_optim"],
        )
        for raw in (EVERY["PPO"], SOFT)
    ),
    *((raw, net(use_same_optim=True), []) for raw in (EVERY["PPO"], SOFT)),
    # The place of norms.
    (EVERY["PPO"], net(norm_place="after"), ["net.norm_place"]),
    (EVERY["PPO"], net(norm_place="after", layer_norm=True), []),
    (EVERY["CrossQ"], net(norm_place="before"), []),
    # A fixed temperature.
    *(
        (EVERY[name], {"algorithm.fixed_alpha": fixed, **keys}, [*bounds])
        for name in ("SoftActorCritic", "CrossQ")
        for fixed in (0.2, {"start_val": 0.5})
        for keys, bounds in (
            ({"algorithm.target_entropy": "auto", "algorithm.alpha_lr": None}, ()),
            (ALPHA_BOUNDS, ALPHA_BOUNDS),
        )
    ),
    *(
        (
            EVERY[name],
            {
                **ALPHA_BOUNDS,
                "algorithm.alpha_lr": 1e-3,
                "algorithm.target_entropy": 0.5,
            },
            [],
        )
        for name in ("SoftActorCritic", "CrossQ")
    ),
    # What learns nothing.
    (ppo(), {"algorithm": {"name": "Random"}}, ["memory", "net"]),
    (ppo(), {"agent": {"algorithm": {"name": "Random"}}}, []),
    # An exact ratio replaces a frequency.
    (
        DQN,
        {"algorithm.training_batch_iter": 1, "algorithm.update_to_data": 0.5},
        [FREQUENCY],
    ),
    (DQN, {**ONCE, "algorithm.update_to_data": 0.5}, []),
    # Keys of the environment that need another one.
    *(
        (SYNC, {f"env.{key}": value, **more}, [] if more else [f"env.{key}"])
        for key, value, effect in [
            ("clip_obs", 5.0, {"env.normalize_obs": True}),
            ("clip_obs", None, {"env.normalize_obs": True}),
            ("frame_op_len", 4, {"env.frame_op": "concat"}),
            ("backend", "envpool", {"env.vectorization_mode": None}),
            ("backend", "envpool", {"env.vectorization_mode": "native"}),
        ]
        for more in ({}, effect)
    ),
    # How ranks divide a spec.
    *(
        (ppo(), {f"meta.{key}": value, **ranks}, [] if ranks else [f"meta.{key}"])
        for key, value in (("scale", "weak"), ("scale_lr", False))
        for ranks in ({}, {"meta.distributed": "all_reduce"})
    ),
    (ppo(), {**STRONG, "meta.scale_lr": False}, ["meta.scale_lr"]),
    # Settings of actors and a learner in other modes.
    *(
        (
            ppo(),
            {"meta.distributed": mode, FLOW: settings},
            [f"{FLOW}.{key}" for key in unused],
        )
        for mode in (False, "synced", "all_reduce")
        for settings, unused in (
            *(({key: value}, [key]) for key, value in OF_ACTORS.items()),
            (OF_ACTORS, OF_ACTORS),
            (DEFAULTS_OF_ACTORS, []),
        )
    ),
    # Settings of actors that an algorithm has no use for.
    *(
        (ppo(), actors(**{key: value}), [f"{FLOW}.{key}"] * (key == "train_ratio"))
        for key, value in OF_LEARNING
    ),
    *(
        (
            raw,
            {**ONCE, **actors(**{key: value})},
            [f"{FLOW}.{key}"] * (key == "learn_queue"),
        )
        for raw in (DQN, SOFT)
        for key, value in OF_LEARNING
        if key != "train_ratio"
    ),
    *(
        (raw, {**ONCE, **actors(train_ratio=ratio)}, [])
        for raw in (DQN, SOFT)
        for ratio in (2.0, None)
    ),
    (ppo(), actors(queue_size=2, inference="learner", learn_queue=2), []),
    (
        ppo(),
        actors(queue_size=2, inference="learner", learn_queue=2, serial=True),
        [f"{FLOW}.queue_size", f"{FLOW}.inference"],
    ),
    (ppo(), correction("vtrace"), []),
    (
        ppo(),
        correction("none"),
        [f"{FLOW}.correction.rho_bar", f"{FLOW}.correction.c_bar"],
    ),
    # A ratio of the mode replaces keys of the algorithm.
    *(
        (DQN, {**actors(train_ratio=ratio), "algorithm.training_iter": 3}, keys)
        for ratio, keys in [
            ("spec", []),
            (
                0.5,
                [FREQUENCY, "algorithm.training_batch_iter", "algorithm.training_iter"],
            ),
            (None, [FREQUENCY, "algorithm.training_batch_iter"]),
        ]
    ),
    (DQN, {**actors(train_ratio="spec"), **EXACT, FREQUENCY: 16}, [FREQUENCY]),
    *(
        (
            DQN,
            {**actors(train_ratio=ratio), **EXACT, FREQUENCY: 16},
            [FREQUENCY, "algorithm.update_to_data"],
        )
        for ratio in (0.5, None)
    ),
    # Actions without σ have no first deviation.
    *(
        (raw, net(log_std_init=0.0), ["net.log_std_init"] * unused)
        for raw, unused in [
            (ppo(), False),
            (ppo(agent__algorithm__action_pdtype="Normal"), False),
            (ppo(agent__algorithm__action_pdtype="Beta"), True),
            (ppo(agent__algorithm__action_pdtype="Categorical"), True),
            (DQN, True),
            (sarsa(), True),
        ]
    ),
]


@pytest.mark.parametrize(("base", "changes", "unused"), ROWS)
def test_keys_without_effect_are_reported_and_no_others(base, changes, unused):
    parsed = parse("s", changed(base, changes))
    assert_lines([str(problem) for problem in parsed.problems], [])
    paths = [f"agent.{key}" if key.split(".")[0] in OF_AGENT else key for key in unused]
    assert_lines(sorted(parsed.legacy), [f"{path} (" for path in sorted(paths)])


@pytest.mark.parametrize("name", WITHOUT_TARGETS)
def test_the_reason_names_the_algorithm(name):
    parsed = parse("s", changed(WITHOUT_TARGETS[name], net(**MOVING)))
    assert f"{name} has no target networks" in parsed.legacy[0]


@pytest.mark.parametrize(
    ("name", "changes", "problem"),
    [
        *(
            (
                name,
                {"critic_net": CRITIC},
                f"agent.critic_net: {name} has one net, agent.net, and no critic; "
                "remove the block",
            )
            for name in ONE_NET
        ),
        *(
            (
                name,
                {"net.shared": True},
                f"agent.net.shared = true: {name} has critics separate from the "
                "actor; set",
            )
            for name in ("SoftActorCritic", "CrossQ")
        ),
        *(
            (
                name,
                {"algorithm.fixed_alpha": fixed, f"algorithm.{key}": value},
                f"agent.algorithm.{key} = {value}: tunes α, and fixed_alpha sets it; "
                "remove one",
            )
            for name in ("SoftActorCritic", "CrossQ")
            for fixed in (0.2, {"start_val": 0.5})
            for key, value in (("target_entropy", -2.0), ("alpha_lr", 1e-3))
        ),
    ],
)
def test_misleading_keys_are_refused(name, changes, problem):
    assert_problem(changed(EVERY[name], changes), problem)


@pytest.mark.parametrize("path", shipped_files(), ids=lambda path: path.stem)
def test_no_shipped_spec_gets_a_warning(path, caplog):
    with caplog.at_level(logging.WARNING):
        for name in spec_names(read_file(path)):
            load_spec(path, name, fillings(path))
    assert caplog.messages == []


def test_all_keys_without_effect_are_one_line_for_a_file(caplog):
    raw = changed(WITHOUT_TARGETS["VanillaDQN"], net(**MOVING, shared=True))
    del raw["meta"]["log_frequency"]
    with caplog.at_level(logging.WARNING):
        parse_spec("s", raw)
    (line,) = caplog.messages
    assert line.startswith("s: keys without meaning here are ignored: agent.net.")
    assert all(f"agent.net.{key} (" in line for key in ("shared", *MOVING))
