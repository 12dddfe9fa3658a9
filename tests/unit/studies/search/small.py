"""Small searches: their specs, and samplers with arguments that fit."""

from hypothesis import strategies as st

from slm_lab.spec.search import Dimension
from tests.support import parse, ppo

GAMMA = "agent.algorithm.gamma"
RATE = "agent.net.optim_spec.lr"
LAYERS = "agent.net.hid_layers"


def searched(search, **changes):
    """The small PPO spec with a search block; keywords are dotted paths with __ for
    dots."""
    return parse(ppo(search=search, **changes))


LOWER = st.floats(-1e6, 1e6)
ABOVE_ZERO = st.floats(1e-6, 1e6)
WIDTH = st.floats(1e-3, 1e3)
QUANTUM = st.sampled_from([0.125, 0.5, 1, 3, 16])


def multiples(first, q, count):
    return [first * q, (first + count) * q, q]


COUNT = st.integers(1, 50)
WHOLE = st.sampled_from([1, 2, 5, 16])
ARGUMENTS = {
    "uniform": st.builds(lambda low, width: [low, low + width], LOWER, WIDTH),
    "quniform": st.builds(multiples, st.integers(-50, 50), QUANTUM, COUNT),
    "loguniform": st.builds(
        lambda low, width: [low, low * (1 + width)], ABOVE_ZERO, WIDTH
    ),
    "qloguniform": st.builds(multiples, st.integers(1, 50), QUANTUM, COUNT),
    "randint": st.builds(
        lambda low, n: [low, low + n], st.integers(-1000, 1000), COUNT
    ),
    "qrandint": st.builds(multiples, st.integers(-50, 50), WHOLE, COUNT),
    "lograndint": st.builds(lambda low, n: [low, low + n], st.integers(1, 1000), COUNT),
    "qlograndint": st.builds(multiples, st.integers(1, 50), WHOLE, COUNT),
    "normal": st.tuples(LOWER, WIDTH).map(list),
    "randn": st.tuples(LOWER, WIDTH).map(list),
    "qrandn": st.builds(
        lambda mean, sd, q: [mean, sd, q], st.floats(-10, 10), WIDTH, QUANTUM
    ),
}
"""For each sampler of numbers, arguments that a spec may give it."""

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(-5, 5),
    st.text("ab", max_size=3),
    st.lists(st.integers(1, 64), max_size=3),
    st.dictionaries(st.sampled_from(["name", "lr"]), st.integers(0, 3), max_size=2),
)
"""What a list of choice or grid_search may hold."""


@st.composite
def numbers(draw, path="a.x"):
    """A dimension of any sampler of numbers."""
    sampler = draw(st.sampled_from(sorted(ARGUMENTS)))
    return Dimension(f"{path}__{sampler}", path, sampler, draw(ARGUMENTS[sampler]))


@st.composite
def lists(draw, path="a.x"):
    """A dimension that picks from a list."""
    sampler = draw(st.sampled_from(["choice", "grid_search"]))
    args = draw(st.lists(VALUES, min_size=1, max_size=4))
    return Dimension(f"{path}__{sampler}", path, sampler, args)


def assert_drawn(dimension, value):
    """Asserts that the sampler may draw the value, up to rounding."""
    name, args = dimension.sampler, dimension.args
    if name in ("choice", "grid_search"):
        assert any(
            value is each or (type(value) is type(each) and value == each)
            for each in args
        )
        return
    assert type(value) is (int if "int" in name else float)
    if name.startswith("q"):
        q = args[2]
        assert abs(value / q - round(value / q)) < 1e-6
    if name in ("normal", "randn", "qrandn"):
        return
    lower, upper = args[:2]
    ends_before = name in ("randint", "lograndint") or ("int" in name and args[2] == 1)
    last = upper - 1 if ends_before else upper
    slack = 1e-9 * max(abs(lower), abs(upper))
    assert lower - slack <= value <= last + slack
