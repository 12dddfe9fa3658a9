"""Numbers that would exhaust the machine are refused when the spec is read."""

import pytest

from slm_lab.core.errors import SpecError
from slm_lab.spec.load import parse_spec
from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.arc import TorchArcNetSpec
from slm_lab.spec.schema.conv import ConvNetSpec
from slm_lab.spec.schema.mlp import HydraMLPNetSpec, MLPNetSpec
from slm_lab.spec.schema.recurrent import RecurrentNetSpec
from tests.unit.spec.problems import assert_problem
from tests.unit.spec.spec_data import A3C, DQN, PPO, SIL, changed

NETS = {
    "mlp": {"type": "MLPNet", "hid_layers": [9 * 10**18]},
    "conv": {"type": "ConvNet", "conv_hid_layers": [[32, 10**9]]},
    "channels": {"type": "ConvNet", "conv_hid_layers": [[10**9, 3]]},
    "hydra": {"type": "HydraMLPNet", "hid_layers": [[4], [10**9], [4]]},
    "rnn": {"type": "RecurrentNet", "rnn_hidden_size": 10**9},
    "arc": {
        "type": "TorchArcNet",
        "arc": {
            "modules": {
                "body": {"Sequential": [{"LazyLinear": {"out_features": 10**9}}]}
            }
        },
    },
}

BEYOND = [
    (PPO, "meta.max_session", 1e308, bounds.SESSIONS),
    (PPO, "meta.threads", 100_000, bounds.THREADS),
    (PPO, "meta.random_seed", 1e30, bounds.SEED),
    (PPO, "meta.max_trial", 10**9, bounds.TRIALS),
    (PPO, "meta.log_frequency", 1e300, bounds.FRAMES),
    (PPO, "meta.rigorous_eval", 10**9, bounds.ENVS),
    (PPO, "meta.actor_learner", {"unroll_length": 10**9}, bounds.ROLLOUT),
    (PPO, "env.num_envs", 1e15, bounds.ENVS),
    (PPO, "env.max_frame", 1e308, bounds.FRAMES),
    (PPO, "env.frame_op_len", 10**9, bounds.FRAMES_JOINED),
    (PPO, "env.image_downsize", [84, 10**9], bounds.PIXELS),
    (PPO, "agent.algorithm.time_horizon", 10**9, bounds.ROLLOUT),
    (PPO, "agent.algorithm.training_epoch", 10**9, bounds.EPOCHS),
    (PPO, "agent.net.critic_hid_layers", [10**9], bounds.WIDTH),
    (
        PPO,
        "agent.algorithm.clip_eps_spec",
        {"start_val": 0.2, "end_step": 1e308},
        bounds.FRAMES,
    ),
    (A3C, "agent.algorithm.training_frequency", 1e308, bounds.ROLLOUT),
    (DQN, "agent.algorithm.training_iter", 10**6, bounds.STEPS_OF_EVENT),
    (DQN, "agent.algorithm.training_batch_iter", 10**5, bounds.STEPS_OF_EVENT),
    (DQN, "agent.algorithm.num_step_returns", 10**9, bounds.STEPS_OF_TARGET),
    (DQN, "agent.memory.max_size", 1e308, bounds.REPLAYED),
    (DQN, "agent.memory.batch_size", 1e300, bounds.BATCH),
    (SIL, "agent.memory.max_size", 1e308, bounds.REPLAYED),
]


@pytest.mark.parametrize(
    ("raw", "path", "value", "bound"), BEYOND, ids=lambda x: str(x)[:40]
)
def test_a_number_beyond_its_bound_is_one_line_with_the_reason(raw, path, value, bound):
    assert_problem(
        changed(raw, {path: value}),
        f"{path}…must be <= {bounds.short(bound.number)}: {bound.why}",
    )


@pytest.mark.parametrize("name", NETS)
def test_no_layer_is_wider_than_a_machine_can_hold(name):
    assert_problem(changed(PPO, agent__net=NETS[name]), "…must be <= ")


def test_lists_have_a_greatest_length():
    long = "…has 1,001 entries, at most 1,000:"
    net = {"type": "MLPNet", "hid_layers": [1] * 1001}
    assert_problem(changed(PPO, agent__net=net), f"{long} {bounds.LAYERS.why}")
    search = {"agent.algorithm.gamma__choice": [0.9] * 1001}
    assert_problem(changed(PPO, search=search), f"{long} {bounds.CHOICES.why}")


def test_a_grid_has_a_greatest_number_of_points():
    keys = ("agent.algorithm.gamma", "agent.algorithm.lam")
    values = [(i + 1) / 1000 for i in range(400)]
    search = {f"{key}__grid_search": values for key in keys}
    assert_problem(
        changed(PPO, search=search), "…160,000 points, and must be <= 100,000"
    )


@pytest.mark.parametrize(
    ("raw", "path", "part"),
    [
        (
            changed(PPO, agent__net={"type": "MLPNet", "hid_layers": [65_536] * 3}),
            "agent.net",
            "have 8,589,934,592 weights, which must be <= 1e9",
        ),
        (
            changed(PPO, agent__algorithm__time_horizon=10**6, env__num_envs=1000),
            "agent.algorithm.time_horizon",
            "makes 1,000,000,000 frames of one training event",
        ),
        (
            changed(
                PPO,
                agent__algorithm__time_horizon=10**6,
                agent__algorithm__minibatch_size=1,
            ),
            "agent.algorithm.training_epoch",
            "gradient steps of one training event",
        ),
        (
            changed(
                DQN,
                agent__algorithm__training_iter=200,
                agent__algorithm__training_batch_iter=200,
            ),
            "agent.algorithm.training_iter",
            "= 40,000 gradient steps; it must be <= 10,000",
        ),
        (
            changed(PPO, env__num_envs=2000, env__vectorization_mode="async"),
            "env.num_envs",
            "each copy is a process",
        ),
    ],
)
def test_numbers_that_are_right_one_by_one_may_be_too_much_together(raw, path, part):
    assert_problem(raw, f"{path}…{part}")


@pytest.mark.parametrize(
    ("model", "keys", "weights"),
    [
        (MLPNetSpec, {"hid_layers": [3, 5, 7]}, 3 * 5 + 5 * 7),
        (
            HydraMLPNetSpec,
            {"hid_layers": [[3], [5], [[7, 11], [2]]]},
            15 + 5 * 7 + 7 * 11 + 5 * 2,
        ),
        (
            ConvNetSpec,
            {"conv_hid_layers": [[3, 9], [5, [2, 4]]], "fc_hid_layers": [6, 7]},
            162,
        ),
        (
            RecurrentNetSpec,
            {
                "cell_type": "LSTM",
                "fc_hid_layers": [2, 3],
                "rnn_hidden_size": 5,
                "rnn_num_layers": 2,
            },
            6 + 4 * (5 * (3 + 5) + 5 * (5 + 5)),
        ),
        (
            TorchArcNetSpec,
            {
                "arc": {
                    "modules": {
                        "body": {
                            "Sequential": [
                                {"LazyConv2d": {"out_channels": 3, "kernel_size": 8}},
                                {"ReLU": None},
                                {
                                    "LazyConv2d": {
                                        "out_channels": 5,
                                        "kernel_size": [2, 4],
                                    }
                                },
                                {"LazyLinear": {"out_features": 7}},
                            ]
                        }
                    }
                }
            },
            3 * 5 * 8 + 5 * 7,
        ),
    ],
)
def test_the_weights_between_hidden_layers_are_counted(model, keys, weights):
    assert model.model_validate({"type": "net", **keys}).hidden_weights() == weights


@pytest.mark.parametrize("size", [150, 151, 230])
def test_a_name_leaves_room_for_what_files_add_to_it(size):
    name = "ü" * (size // 2) + "x" * (size % 2)
    if size <= bounds.NAME_BYTES:
        assert parse_spec(name, PPO).name == name
        return
    with pytest.raises(
        SpecError, match=f"takes {size} bytes of a file name, at most 150"
    ):
        parse_spec(name, PPO)
