"""Layers in net blocks: a fault is reported at its path."""

import pytest

from slm_lab.spec.parse import parse
from tests.support import ppo, reinforce, soft
from tests.unit.spec.problems import assert_problem, messages
from tests.unit.spec.spec_data import A3C, DQN, SAC, changed

ROWS = "net.conv_hid_layers"
BODY = "net.arc.modules.body.Sequential"
EVERY_LAYER = "every layer must be [out, kernel, stride, padding, dilation]"


@pytest.mark.parametrize(
    "row",
    [
        [32],
        [32, 0],
        [32, 8, 0],
        [32, 8, 4, -1],
        [[32, 32], 8],
        [32, [8, 8, 8]],
        [32, 8.5],
        32,
    ],
)
def test_rows_that_are_no_convolution_are_refused(row):
    assert_problem(changed(DQN, {ROWS: [row]}), f"agent.{ROWS} = …{EVERY_LAYER}")


@pytest.mark.parametrize("row", [[32, 8], [32, [8, 6], [4, 2], [1, 0], [1, 2]]])
def test_sizes_may_be_left_out_or_be_pairs(row):
    assert_problem(changed(DQN, {ROWS: [row]}), None)


def test_a_layer_that_cannot_be_part_of_a_body_is_refused_where_it_stands():
    raw = changed(SAC, {BODY: [{"Tanh": None}, {"Dropout": {"p": 0.1}}, {"GRU": None}]})
    dropout, gru = messages(raw)
    path = f"agent.{BODY}"
    assert dropout.startswith(
        f"{path}.1.Dropout = {{'p': 0.1}}: cannot be a layer here: it draws"
    )
    refusal = "cannot be a layer here: it has a recurrent state; use RecurrentNet"
    assert gru == f"{path}.2.GRU = null: {refusal}"


@pytest.mark.parametrize(
    ("spec", "key", "noted"),
    [
        (SAC, "hid_layers_activation", "the arc contains its activations"),
        (A3C, "normalize", "it divides images by 255; env.normalize_obs"),
    ],
)
def test_keys_that_mean_nothing_to_a_net_are_noted(spec, key, noted):
    value = True
    if key == "hid_layers_activation":
        value = "tanh"
    parsed = parse("s", changed(spec, **{f"agent__net__{key}": value}))
    assert any(n.startswith(f"agent.net.{key} ({noted}") for n in parsed.legacy)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("LazyLiner", "did you mean LazyLinear?"), ("Dense", "the nearest are ")],
)
def test_an_unknown_layer_gets_the_nearest_names_and_the_list_of_all(name, suggestion):
    (message,) = messages(changed(SAC, {BODY: [{name: None}]}))
    assert f"unknown layer; {suggestion}" in message
    assert len(message) < 250
    listed = "; known: the modules of torch.nn, and LazyBatchRenorm1d"
    assert message.endswith(listed) == (name == "Dense")


@pytest.mark.parametrize("layer", ["LazyBatchRenorm1d", "LazyBatchNorm1d"])
@pytest.mark.parametrize(
    ("momentum", "fits"), [(0, True), (0.3, True), (1, True), (1.1, False)]
)
def test_the_momentum_of_a_normalisation_is_a_share(layer, momentum, fits):
    refused = f"agent.{BODY}.0.{layer}.momentum = {momentum}: must be between 0 and 1"
    raw = changed(SAC, {BODY: [{layer: {"momentum": momentum}}]})
    assert_problem(raw, None if fits else refused)


def hydra(**keys):
    return {
        "type": "HydraMLPNet",
        "optim_spec": {"name": "GlobalAdam", "lr": 1e-3},
        **keys,
    }


@pytest.mark.parametrize(
    ("spec", "tails", "needed"),
    [
        (
            ppo(agent__net=hydra(shared=True, hid_layers=[[], [8], [[4], [4], [4]]])),
            3,
            2,
        ),
        (
            ppo(agent__net=hydra(shared=False, hid_layers=[[], [8], [[4], [4, 4]]])),
            2,
            1,
        ),
        (reinforce(agent__net=hydra(hid_layers=[[], [8], [[4], [4, 4]]])), 2, 1),
        (
            soft(
                "SoftActorCritic", agent__net=hydra(hid_layers=[[], [8], [[4], [4, 4]]])
            ),
            2,
            1,
        ),
    ],
)
def test_tails_that_are_not_one_for_each_output_are_refused(spec, tails, needed):
    many = f"has {tails} tails, and this network needs {needed};"
    assert_problem(spec, f"agent.net.hid_layers.2 = …{many}")


@pytest.mark.parametrize("tails", [[], [4], [[4]], [[4], [4, 4]]])
def test_tails_are_one_list_for_all_or_one_for_each_output(tails):
    assert_problem(
        ppo(agent__net=hydra(shared=True, hid_layers=[[], [8], tails])), None
    )


def test_each_role_may_have_its_own_tails():
    own = {"critic_hid_layers": [[], [8], [[4], [4]]]}
    raw = ppo(agent__net=hydra(shared=False, hid_layers=[[], [8], [4]], **own))
    assert_problem(raw, "agent.net.critic_hid_layers.2 = ")
