"""The lab's memories keep the contract."""

from slm_lab.testing import MemoryContract
from tests.contract.parts_table import MEMORY_ROWS
from tests.contract.table import flat


class TestMemories(MemoryContract):
    cases = flat(MEMORY_ROWS)
