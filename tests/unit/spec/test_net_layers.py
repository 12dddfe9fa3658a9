"""Layers as net blocks write them: what is wrong with them is said where it stands."""

import pytest

from slm_lab.spec.parse import parse
from tests.unit.spec.spec_data import A3C, DQN, SAC, changed

ROWS = "agent__net__conv_hid_layers"
BODY = "agent__net__arc__modules__body__Sequential"
EVERY_LAYER = "every layer must be [out, kernel, stride, padding, dilation]"


def messages(raw):
    return [str(problem) for problem in parse("s", raw).problems]


@pytest.mark.parametrize(
    "row",
    [[32], [32, 0], [32, 8, 0], [32, 8, 4, -1], [[32, 32], 8], [32, [8, 8, 8]], [32, 8.5], 32],
)
def test_rows_that_are_no_convolution_are_refused(row):
    (told,) = messages(changed(DQN, **{ROWS: [row]}))
    assert told.startswith("agent.net.conv_hid_layers = ")
    assert told.endswith(EVERY_LAYER)


@pytest.mark.parametrize("row", [[32, 8], [32, [8, 6], [4, 2], [1, 0], [1, 2]]])
def test_sizes_may_be_left_out_or_be_pairs(row):
    assert messages(changed(DQN, **{ROWS: [row]})) == []


def test_a_layer_that_cannot_be_part_of_a_body_is_refused_where_it_stands():
    raw = changed(SAC, **{BODY: [{"Tanh": None}, {"Dropout": {"p": 0.1}}, {"GRU": None}]})
    dropout, gru = messages(raw)
    path = "agent.net.arc.modules.body.Sequential"
    assert dropout.startswith(f"{path}.1.Dropout = {{'p': 0.1}}: cannot be a layer here: it draws")
    assert gru == f"{path}.2.GRU = null: cannot be a layer here: it keeps a state from step to " \
                  "step; use RecurrentNet"  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "key", "noted"),
    [
        (SAC, "hid_layers_activation", "the arc names its activations"),
        (A3C, "normalize", "it divides images by 255; env.normalize_obs"),
    ],
)
def test_keys_that_mean_nothing_to_a_net_are_noted(spec, key, noted):
    value = "tanh" if key == "hid_layers_activation" else True
    parsed = parse("s", changed(spec, **{f"agent__net__{key}": value}))
    assert any(n.startswith(f"agent.net.{key} ({noted}") for n in parsed.legacy)
