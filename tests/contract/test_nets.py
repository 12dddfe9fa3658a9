"""The lab's nets keep the contract."""

from slm_lab.testing import NetContract
from tests.contract.parts_table import NET_ROWS
from tests.contract.table import flat


class TestNets(NetContract):
    cases = flat(NET_ROWS)
