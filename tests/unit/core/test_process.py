import multiprocessing
import subprocess
import sys
import time

import psutil
import pytest

from slm_lab.core.process import kill_with_children
from tests.faults.lab import wait_until

KILLED = """
import multiprocessing, os
from slm_lab.core.process import start_resource_tracker
start_resource_tracker()
lock = multiprocessing.get_context("spawn").Lock()
os._exit(0)  # as after a kill, only the tracker can free the lock
"""


def test_semaphores_of_a_killed_process_are_freed_without_a_warning():
    done = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


SHELL = ["sh", "-c", "sleep 600 & wait"]


def start_programs():
    subprocess.Popen(SHELL, start_new_session=True)  # as simulators do
    time.sleep(600)


@pytest.mark.medium
def test_programs_that_a_process_has_started_are_killed_with_it():
    process = multiprocessing.get_context("spawn").Process(target=start_programs)
    process.start()
    own = psutil.Process(process.pid)
    wait_until(lambda: len(own.children(recursive=True)) == 2, 60.0)
    programs = own.children(recursive=True)
    kill_with_children(process)
    process.join()
    _, alive = psutil.wait_procs(programs, timeout=60.0)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
    kill_with_children(process)  # an ended process is left alone
