import subprocess
import sys

import pytest

PROBE = """
import resource, sys
from slm_lab.core.process import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def fill():
    return bytearray(8 << 20).count(1)  # what torch asks for: a block of many pages, written to

fill()
before = faults()
for _ in range(20):
    fill()
print(faults() - before)
"""


def page_faults(which):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, which], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="for the C library of Linux")
def test_memory_that_was_freed_is_used_again_without_new_pages():
    assert page_faults("kept") < page_faults("returned") / 10
