"""`python -m slm_lab` is the command `slm-lab`."""

from slm_lab.cli.main import main

if __name__ == "__main__":
    main()
