import io
from collections import OrderedDict, defaultdict
from enum import IntEnum, StrEnum

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from slm_lab.storage.checkpoint import ARRAY, from_plain, to_plain

DTYPES = [
    *(
        np.dtype(f"{kind}{bits}")
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    ),
    *(
        np.dtype(name)
        for name in ("bool", "float16", "float32", "float64", "complex64")
    ),
]
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: npst.arrays(
        dtype, npst.array_shapes(min_dims=0, max_dims=4, min_side=0)
    )
)
texts = st.text("ab9 é中\0\n/_\U0001f600", max_size=8)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**128), 2**128), st.floats(), texts, arrays
)
states = st.dictionaries(
    texts,
    st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
        ),
        max_leaves=12,
    ),
    max_size=4,
)


class Colour(IntEnum):
    RED = 1


class Word(StrEnum):
    STOP = "stop"


def through_a_file(state):
    stream = io.BytesIO()
    torch.save(to_plain(state), stream)
    stream.seek(0)
    return from_plain(torch.load(stream, weights_only=True))


def same(one, other):
    """Equal in type, shape and every bit; any NaN equals any NaN."""
    if type(one) is not type(other):
        return False
    match one:
        case dict():
            alike = list(one) == list(other) and all(
                same(one[key], other[key]) for key in one
            )
        case list():
            alike = len(one) == len(other) and all(map(same, one, other))
        case np.ndarray():
            alike = (one.dtype, one.shape) == (other.dtype, other.shape)
            alike = alike and one.tobytes() == other.tobytes()
        case float():
            alike = repr(one) == repr(other)  # distinguishes -0.0 from 0.0
        case _:
            alike = one == other
    return alike


@settings(deadline=None)  # the first save of a process is slow
@given(states)
def test_a_state_comes_back_from_a_file_as_it_was_without_unpickling_objects(state):
    assert same(through_a_file(state), state)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)], ids=str)
def test_an_array_of_any_type_and_shape_comes_back_and_can_be_written_to(dtype, shape):
    array = np.ones(shape, dtype)
    back = through_a_file({"array": array})["array"]
    assert same(back, array)
    back[...] = 0


def test_an_array_that_cannot_be_written_to_is_saved_without_a_warning():
    array = np.arange(3)
    array.flags.writeable = False
    assert same(through_a_file([array])[0], np.arange(3))


@pytest.mark.parametrize(
    "bit_generator", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"]
)
def test_a_restored_numpy_generator_continues_its_stream(bit_generator):
    def generator(seed):
        return np.random.Generator(getattr(np.random, bit_generator)(seed))

    drawn = generator(1)
    fresh = generator(2)
    drawn.random(7)
    fresh.bit_generator.state = through_a_file(drawn.bit_generator.state)
    assert np.array_equal(drawn.random(5), fresh.random(5))


def test_a_torch_tensor_stays_a_tensor():
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    back = through_a_file({"weights": tensor})["weights"]
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)


@pytest.mark.parametrize(
    "number",
    [
        np.float64(1.5),
        np.float32(0.5),
        np.int64(-3),
        np.uint64(2**64 - 1),
        np.bool_(True),
    ],
)
def test_a_numpy_number_becomes_the_number_of_python(number):
    assert same(through_a_file([number])[0], number.item())


def test_a_tuple_comes_back_as_a_list():
    assert through_a_file({"pair": (1, (2.0, None))}) == {"pair": [1, [2.0, None]]}


@pytest.mark.parametrize("make", [OrderedDict, lambda d: defaultdict(list, d)])
def test_a_dict_of_another_class_comes_back_as_a_dict(make):
    assert same(through_a_file(make({"b": 1, "a": 2})), {"b": 1, "a": 2})


@pytest.mark.parametrize(
    "refused",
    [
        object(),
        {1, 2},
        b"bytes",
        1j,
        slice(3),
        lambda: None,
        np.random.default_rng(0),
        np.array([None, {}], dtype=object),
        np.array(object(), dtype=object),
        np.array(["a", "bc"]),
        np.array(["2026-01-01"], "datetime64[D]"),
        np.zeros(2, [("a", int), ("b", float)]),
        np.datetime64("2026-01-01"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize(
    "place", [lambda x: {"a": [x]}, lambda x: [{"a": x}]], ids=["list", "dict"]
)
def test_an_object_that_is_no_plain_state_is_refused_at_any_depth(refused, place):
    with pytest.raises(TypeError):
        to_plain(place(refused))


@pytest.mark.parametrize("enum", [Colour.RED, Word.STOP])
def test_an_enum_is_refused_or_comes_back_as_its_value(enum):
    try:
        saved = to_plain({"a": enum})
    except TypeError:
        return
    stream = io.BytesIO()
    torch.save(saved, stream)
    stream.seek(0)
    assert torch.load(stream, weights_only=True) == {"a": enum.value}


@pytest.mark.parametrize("key", [1, np.int64(1), (1, 2), Word.STOP, None, ARRAY])
def test_a_key_is_refused_or_comes_back_equal(key):
    try:
        saved = to_plain({key: 1.0})
    except TypeError:
        return
    stream = io.BytesIO()
    torch.save(saved, stream)
    stream.seek(0)
    assert from_plain(torch.load(stream, weights_only=True)) == {key: 1.0}
