"""Whatever is built is in the table, and so in every suite."""

import typing

from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.spec.schema.algorithm import ActionPolicy, AlgorithmSpec
from tests.contract.parts_table import MEMORY_ROWS, NET_ROWS
from tests.contract.table import ALGORITHM_ROWS, built

SPECS = [row.spec.agent for rows in ALGORITHM_ROWS.values() for row in rows.values()]


def test_every_built_part_has_a_row_and_every_row_has_a_part():
    assert set(ALGORITHM_ROWS) == built(ALGORITHMS)
    assert set(MEMORY_ROWS) == built(MEMORIES)
    assert set(NET_ROWS) == built(NETS)
    assert all([*ALGORITHM_ROWS.values(), *MEMORY_ROWS.values(), *NET_ROWS.values()])


def test_every_row_has_the_algorithm_of_its_key():
    for name, rows in ALGORITHM_ROWS.items():
        assert {row.spec.agent.algorithm.name for row in rows.values()} == {name}


def test_every_memory_and_every_net_is_trained_with():
    assert {spec.memory.name for spec in SPECS if spec.memory} == built(MEMORIES)
    assert {spec.net.type for spec in SPECS if spec.net} == built(NETS)


def test_every_way_of_drawing_actions_is_drawn_with():
    able: set[str] = set()
    for name in ALGORITHM_ROWS:
        model = ALGORITHMS.get(name).params
        assert issubclass(model, AlgorithmSpec)
        able |= model.PDTYPES or set()
    # What "default" stands for by action space need not be named.
    default = {"Normal", "Categorical", "MultiCategorical", "Bernoulli"}
    assert able - default <= {spec.algorithm.action_pdtype for spec in SPECS}
    policies = {spec.algorithm.action_policy for spec in SPECS}
    literal, *_ = typing.get_args(ActionPolicy)
    assert policies == set(typing.get_args(literal))
