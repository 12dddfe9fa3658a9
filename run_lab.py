"""The command `slm-lab run` under its classic name."""

from slm_lab.__main__ import run_lab

if __name__ == "__main__":  # spawned Sessions import this file again
    run_lab()
