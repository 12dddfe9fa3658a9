import numpy as np
import pytest
import torch
from gymnasium import spaces

from slm_lab.agent.distribution.distributions import MASKED_LOGIT
from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.net.action_mask import ActionMask
from slm_lab.agent.net.layers import Head
from slm_lab.agent.net.parts import EncodedNet, PartsBody
from slm_lab.agent.net.recurrent import RecurrentNet
from slm_lab.agent.recurrent_state import pack_obs
from slm_lab.core.errors import LabError
from slm_lab.core.observation import BYTE, FLOAT32, ObservationLayout
from slm_lab.env.convert.mask import MASK
from slm_lab.env.convert.parts import RowConverter
from slm_lab.spec import builtin  # noqa: F401
from slm_lab.spec.checks.parts import part_problems
from slm_lab.spec.schema.agent import NET
from tests.support import seeded

SCENE = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (20, 16, 3), np.uint8),
        "pose": spaces.Box(-1.0, 1.0, (2,), np.float64),
        "room": spaces.Discrete(4, start=1),
        "dials": spaces.MultiDiscrete([2, 3]),
        "lamps": spaces.MultiBinary(3),
    }
)
CONV = {"conv_hid_layers": [[4, 5, 3]], "normalize": True}
CONVERTER = RowConverter(SCENE, "X")


def scenes(count):
    SCENE.seed(0)
    return [SCENE.sample() for _ in range(count)]


def rows_of(observed, converter=CONVERTER):
    return torch.from_numpy(np.stack([converter.row(each) for each in observed]))


def net_of(layout=CONVERTER.layout, **keys):
    if "type" not in keys:
        keys = {"type": "MLPNet", "hid_layers": [8], **keys}
    spec = NET.validate(keys)
    return build_net(spec, layout, [Head(2)], seeded(0))


def part_of(key, observed):
    return torch.from_numpy(np.stack([each[key] for each in observed]))


def test_by_default_images_are_convolved_and_all_else_is_one_vector():
    observed = scenes(5)
    net = net_of()
    assert isinstance(net, EncodedNet)
    features = net.body(rows_of(observed))
    (encoder,) = net.body.encoders
    image = part_of("camera", observed).movedim(-1, 1)
    parts = {
        "dials": torch.cat(
            [
                torch.eye(size)[part_of("dials", observed)[:, index]]
                for index, size in enumerate((2, 3))
            ],
            1,
        ),
        "lamps": part_of("lamps", observed).float(),
        "pose": part_of("pose", observed).float(),
        "room": torch.eye(4)[part_of("room", observed) - 1],
    }
    plain = [parts[part.name] for part in CONVERTER.layout.parts if part.name in parts]
    torch.testing.assert_close(features, torch.cat([*plain, encoder(image)], 1))
    outputs = net.net.forward(features)
    torch.testing.assert_close(net.forward(rows_of(observed)), outputs)


def test_a_net_sees_the_parts_that_obs_names_alone():
    observed = scenes(3)
    net = net_of(obs=["pose", "room"])
    seen = net.forward(rows_of(observed))
    others = [
        {**each, "camera": each["camera"] // 2, "lamps": 1 - each["lamps"]}
        for each in observed
    ]
    torch.testing.assert_close(net.forward(rows_of(others)), seen, rtol=0, atol=0)
    moved = [{**each, "pose": -each["pose"]} for each in observed]
    assert (net.forward(rows_of(moved))[0] != seen[0]).any()


@pytest.mark.parametrize("obs", [None, ["camera", "pose"]])
def test_the_convolutions_of_a_net_are_those_of_an_encoder_beside_other_keys(obs):
    pose = {"type": "MLPNet", "hid_layers": [5]}
    camera = {"type": "ConvNet", **CONV}
    net = net_of(type="ConvNet", **CONV, obs=obs, parts={"pose": pose})
    parts = {"camera": camera, "pose": pose}
    twin = net_of(type="ConvNet", **CONV, obs=obs, parts=parts)
    twin.load_state_dict(net.state_dict())
    rows = rows_of(scenes(3))
    torch.testing.assert_close(net.forward(rows), twin.forward(rows), rtol=0, atol=0)


def test_an_embedding_is_the_row_of_its_table():
    net = net_of(parts={"dials": {"type": "Embedding", "dim": 5}}, obs=["dials"])
    observed = scenes(6)
    features = net.body(rows_of(observed))
    (embedding,) = net.body.encoders
    first, second = embedding.tables
    dials = part_of("dials", observed)
    expected = torch.cat([first[dials[:, 0]], second[dials[:, 1]]], 1)
    torch.testing.assert_close(features, expected)


def test_an_index_of_many_values_needs_an_embedding():
    space = spaces.Dict(
        word=spaces.Discrete(100_000), pose=spaces.Box(-1, 1, (2,), np.float32)
    )
    layout = RowConverter(space, "X").layout
    with pytest.raises(LabError, match="100,000 values, too many for a one-hot"):
        net_of(layout)
    net = net_of(layout, parts={"word": {"type": "Embedding", "dim": 3}})
    assert net.body.width == 2 + 3


def test_the_frames_of_an_image_are_channels_and_of_other_parts_the_newest_counts():
    frames = 3
    size = CONVERTER.layout.row_size
    layout = CONVERTER.layout.joined(frames, (frames * size,), np.dtype(np.uint8))
    observed = scenes(frames)
    joined = rows_of(observed).reshape(1, -1)
    body = net_of(layout).body
    assert isinstance(body, PartsBody)
    image = body.read(joined, "camera")
    cameras = part_of("camera", observed).movedim(-1, 1)
    assert torch.equal(image, cameras.reshape(1, -1, 20, 16))
    pose = body.read(joined, "pose")
    assert torch.equal(pose, part_of("pose", observed)[-1:].float())


def test_parts_by_name_are_the_row():
    observed = scenes(4)
    body = net_of(parts={"camera": {"type": "ConvNet", **CONV}}).body
    rows = rows_of(observed)
    by_name = {name: body.read(rows, name) for name in body.names}
    torch.testing.assert_close(body(by_name), body(rows), rtol=0, atol=0)


def test_a_flat_vector_of_parts_is_seen_as_before_without_encoders():
    space = spaces.Dict(
        pose=spaces.Box(-1, 1, (3,), np.float32), room=spaces.Discrete(2)
    )
    converter = RowConverter(space, "X")
    assert converter.layout.dtype == np.float32
    plain = net_of((5,))
    net = net_of(converter.layout)
    assert type(net) is type(plain)
    encoded = net_of(converter.layout, parts={"pose": {"type": "MLPNet"}})
    assert isinstance(encoded, EncodedNet)


def test_a_recurrent_net_on_bytes_computes_what_it_does_on_floats():
    """The rows differ; the numbers in them do not."""
    generator = np.random.default_rng(0)
    numbers = generator.integers(0, 9, (6, 5)).astype(np.uint8)
    spec = NET.validate(
        {"type": "RecurrentNet", "rnn_hidden_size": 4, "fc_hid_layers": [3]}
    )
    layouts = [ObservationLayout((5,), dtype) for dtype in (BYTE, FLOAT32)]
    nets = [build_net(spec, each, [Head(2)], seeded(0)) for each in layouts]
    state = generator.normal(size=(6, 4)).astype(np.float32)
    starts = np.array([True, False, False, True, False, False])
    outputs = []
    for net, layout in zip(nets, layouts, strict=True):
        assert isinstance(net, RecurrentNet)
        rows = torch.from_numpy(pack_obs(numbers.astype(layout.dtype), state, starts))
        assert rows.dtype == (torch.uint8 if layout.dtype == BYTE else torch.float32)
        outputs.append([*net.forward(rows), *net.step(rows)])
    torch.testing.assert_close(*outputs, rtol=0, atol=0)


def test_a_recurrent_net_sees_images_by_convolutions():
    image = ObservationLayout((2, 20, 20), BYTE)
    spec = NET.validate(
        {
            "type": "RecurrentNet",
            "rnn_hidden_size": 4,
            "parts": {"obs": {"type": "ConvNet", **CONV}},
        }
    )
    net = build_net(spec, image, [Head(3)], seeded(0))
    obs = np.random.default_rng(0).integers(0, 255, (2, 2, 20, 20)).astype(np.uint8)
    state = np.zeros((2, 4), np.float32)
    rows = torch.from_numpy(pack_obs(obs, state, np.ones(2, np.bool_)))
    output, hidden = net.step(rows)
    features = net.body.body(torch.from_numpy(obs))
    _, expected = net.cell(features.unsqueeze(1), torch.zeros(1, 2, 4))
    torch.testing.assert_close(hidden, expected[0])
    torch.testing.assert_close(
        net.advance(torch.from_numpy(obs), torch.zeros(2, 4)), (output, hidden)
    )


REMEMBERED = {
    "type": "RecurrentNet",
    "cell_type": "LSTM",
    "fc_hid_layers": [3],
    "rnn_hidden_size": 4,
    "seq_len": 6,
}
BEHIND = {
    "MLPNet": {"hid_layers": [8]},
    "DuelingMLPNet": {"hid_layers": [8]},
    "HydraMLPNet": {"hid_layers": [[8], [6], [[5]]]},
    "ConvNet": {**CONV, "fc_hid_layers": [8]},
    "DuelingConvNet": {**CONV, "fc_hid_layers": [8]},
    "ResNet": {"channels": [4], "fc_hid_layers": [8]},
    "SimBaNet": {"width": 8, "num_blocks": 1},
    "TorchArcNet": {"arc": {"modules": {"body": {"Sequential": [{"ReLU": None}]}}}},
}


@pytest.mark.parametrize("kind", BEHIND)
def test_one_part_goes_through_a_cell_and_the_others_pass_beside_it(kind):
    """Two sequences of three scenes."""
    observed = scenes(6)
    rows = rows_of(observed)
    net = net_of(type=kind, **BEHIND[kind], parts={"pose": REMEMBERED})
    state = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    starts = np.array([True, False, False] * 2)
    outputs = net.forward(torch.from_numpy(pack_obs(rows.numpy(), state, starts)))
    body = net.body.body
    assert isinstance(body, PartsBody)
    features = body(rows)
    pose = body.encoders[-1](part_of("pose", observed).float())
    torch.testing.assert_close(features[:, -3:], pose)
    hidden = torch.from_numpy(state[::3]).reshape(2, 2, 4).movedim(1, 0)
    before = tuple(part[None].contiguous() for part in hidden)
    remembered, _ = net.cell(pose.view(2, 3, 3), before)
    joined = torch.cat([features[:, :-3], remembered.flatten(0, 1)], 1)
    torch.testing.assert_close(outputs, net.tail(joined))


def test_acting_step_by_step_is_the_sequence_and_the_parts_by_name_are_the_row():
    observed = scenes(5)
    rows = rows_of(observed)
    net = net_of(parts={"pose": REMEMBERED, "dials": {"type": "Embedding"}})
    state = np.zeros((5, net.state_size), np.float32)
    starts = np.arange(5) == 0
    (expected,) = net.forward(torch.from_numpy(pack_obs(rows.numpy(), state, starts)))
    carried = torch.zeros(1, net.state_size)
    body = net.body.body
    for step in range(5):
        by_name = {name: body.read(rows[step : step + 1], name) for name in body.names}
        row = pack_obs(rows[step : step + 1].numpy(), carried.numpy(), starts[:1])
        output, following = net.step(torch.from_numpy(row))
        torch.testing.assert_close(output, expected[step : step + 1])
        torch.testing.assert_close(net.advance(by_name, carried), (output, following))
        carried = following.detach()


def test_a_cell_for_the_only_part_is_a_recurrent_net_with_layers_behind_it():
    layout = ObservationLayout((5,), FLOAT32)
    encoded = net_of(layout, hid_layers=[], parts={"obs": REMEMBERED})
    plain = net_of(layout, **REMEMBERED)
    with torch.no_grad():
        pairs = zip(encoded.parameters(), plain.parameters(), strict=True)
        for parameter, other in pairs:
            parameter.copy_(other)
    obs = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    state = np.ones((4, 8), np.float32)
    packed = torch.from_numpy(pack_obs(obs, state, np.arange(4) == 0))
    torch.testing.assert_close(encoded.forward(packed), plain.forward(packed))


REFUSED = {
    "two states": (
        {"parts": {"pose": REMEMBERED, "lamps": REMEMBERED}},
        "agent.net.parts.lamps.type = 'RecurrentNet': pose is recurrent, and a net has "
        "one state; use MLPNet here",
    ),
    "two states, one of the net": (
        {"type": "RecurrentNet", "parts": {"pose": REMEMBERED}},
        "agent.net.parts.pose.type = 'RecurrentNet': the net itself is recurrent",
    ),
    "a state of an image": (
        {"parts": {"camera": REMEMBERED}},
        "agent.net.parts.camera.type = 'RecurrentNet': takes a vector, and this part "
        "is an image; set it as the type of the whole net",
    ),
    "an unknown part": (
        {"obs": ["pose", "rooms"]},
        "agent.net.obs.1 = 'rooms': the observation has no such part; it has",
    ),
    "a part twice": (
        {"obs": ["pose", "room", "pose"]},
        "agent.net.obs.2 = 'pose': is there twice; remove one",
    ),
    "no part": ({"obs": []}, "agent.net.obs = []: must name a part"),
    "an encoder of an unknown part": (
        {"parts": {"x": {"type": "MLPNet"}}},
        "agent.net.parts.x = 'x': the observation has no such part",
    ),
    "an encoder of a part that is not seen": (
        {"obs": ["pose"], "parts": {"room": {"type": "MLPNet"}}},
        "agent.net.parts.room = 'room': is not seen; add it to agent.net.obs",
    ),
    "an embedding of numbers": (
        {"parts": {"pose": {"type": "Embedding"}}},
        "agent.net.parts.pose.type = 'Embedding': only a Discrete or MultiDiscrete",
    ),
    "convolutions of a vector": (
        {"parts": {"pose": {"type": "ConvNet", **CONV}}},
        "agent.net.parts.pose.type = 'ConvNet': takes observations that are images",
    ),
    "too large a kernel": (
        {"parts": {"camera": {"type": "ConvNet", "conv_hid_layers": [[4, 30]]}}},
        "agent.net.parts.camera.conv_hid_layers.0",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_parts_that_cannot_be_are_named_with_their_place(what):
    keys, message = REFUSED[what]
    with pytest.raises(LabError) as caught:
        net_of(**keys)
    assert message.replace("'", '"') in str(caught.value).replace("'", '"')


BY_ROLES = {
    "type": "MLPNet",
    "hid_layers": [8],
    "obs": ["camera", "room"],
    "critic_obs": ["camera", "pose"],
    "parts": {
        "room": {"type": "Embedding", "dim": 3},
        "pose": {"type": "MLPNet", "hid_layers": [5]},
    },
}


def test_each_role_has_the_encoders_of_the_parts_that_it_sees():
    spec = NET.validate(BY_ROLES)
    for role, name, width in (("actor", "room", 3), ("critic", "pose", 5)):
        of_role = spec.for_role(role)
        assert list(of_role.parts) == [name]
        assert list(of_role.for_role(role).parts) == [name]
        net = build_net(of_role, CONVERTER.layout, [Head(2)], seeded(0))
        image, encoder = net.body.encoders
        assert net.body.width == image.width + width
        assert encoder.width == width


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"critic_obs": ["pose", "rooms"]}, "agent.net.critic_obs.1"),
        ({"critic_obs": []}, "agent.net.critic_obs"),
        ({"critic_parts": {"x": {"type": "MLPNet"}}}, "agent.net.critic_parts.x"),
        (
            {"critic_parts": {"room": {"type": "MLPNet"}}},
            "agent.net.critic_parts.room: is not seen; add it to agent.net.critic_obs",
        ),
        (
            {"critic_parts": {"pose": {"type": "ConvNet", **CONV}}},
            "agent.net.critic_parts.pose.type",
        ),
    ],
)
def test_a_problem_of_one_role_names_the_key_of_that_role(keys, message):
    spec = NET.validate({**BY_ROLES, **keys}).for_role("critic")
    problem, *_ = part_problems(spec, CONVERTER.layout)
    assert f"{problem.path}: {problem.message}".startswith(message)


def test_a_net_that_sees_nothing_has_one_problem():
    spec = NET.validate({"type": "ConvNet", **CONV, "obs": []})
    (problem,) = part_problems(spec, CONVERTER.layout)
    assert problem.message.startswith("must name a part; there are ")


def test_stacked_vectors_have_no_parts_to_name():
    stacked = CONVERTER.layout.joined(3, (3, 8), FLOAT32)
    spec = NET.validate({"type": "MLPNet", "obs": ["pose"]})
    (problem,) = part_problems(spec, stacked)
    assert problem.message == (
        'stacked vectors have no parts; use env.frame_op "concat"'
    )


FILTERS = {
    "ConvNet": {**CONV, "fc_hid_layers": [7]},
    "DuelingConvNet": {**CONV, "fc_hid_layers": [7]},
    "ResNet": {"channels": [4], "num_blocks": 1, "fc_hid_layers": [7]},
}


@pytest.mark.parametrize("kind", FILTERS)
@pytest.mark.parametrize("obs", [None, ["camera"], ["pose", "camera"]])
def test_a_net_of_images_sees_them_by_its_own_convolutions(kind, obs):
    parts = {"pose": {"type": "MLPNet", "hid_layers": [5]}}
    keys = {"type": kind, **FILTERS[kind], "obs": obs, "norm_place": "after"}
    if obs != ["camera"]:
        keys["parts"] = parts
    net = build_net(NET.validate(keys), CONVERTER.layout, [Head(2)], seeded(0))
    image = {**keys, "type": kind.removeprefix("Dueling"), "obs": None, "parts": {}}
    alone = build_net(NET.validate(image), (3, 20, 16), [Head(2)], seeded(0))
    body = next(each for each in net.modules() if isinstance(each, PartsBody))
    shapes, expected = (
        [value.shape for value in module.parameters()]
        for module in (body.encoders[-1], alone.body)
    )
    assert shapes == expected
    assert net.forward(rows_of(scenes(3)))[0].shape == (3, 2)


def test_values_of_actions_that_are_not_allowed_are_never_the_greatest():
    space = spaces.Dict(
        {"obs": spaces.Box(-1, 1, (2,), np.float32), MASK: spaces.MultiBinary(3)}
    )
    converter = RowConverter(space, "X", mask_sizes=(3,))
    mask = ActionMask(converter.layout)
    rows = np.array([[0.5, 0.5, 1, 0, 1], [0.5, 0.5, 0, 1, 0]], np.float32)
    values = np.array([[1.0, 5.0, 2.0], [9.0, -7.0, 8.0]], np.float32)
    expected = np.where(rows[:, 2:] != 0, values, np.float32(MASKED_LOGIT))
    np.testing.assert_array_equal(mask.mask_arrays(values, rows), expected)
    masked = mask(torch.from_numpy(values), torch.from_numpy(rows))
    np.testing.assert_array_equal(masked.numpy(), expected)
    shares = mask.greatest_entropy(torch.from_numpy(rows))
    expected_shares = torch.tensor([np.log(2) / np.log(3), 0.0], dtype=torch.float32)
    torch.testing.assert_close(shares, expected_shares)
