"""`python -m slm_lab` is the command `slm-lab`."""

import os
import sys

import slm_lab

# Python puts the working directory first, where any file would replace a module of that name.
_here = os.getcwd()
if sys.path[0] == _here and not str(slm_lab.__file__).startswith(os.path.join(_here, "")):
    del sys.path[0]

from slm_lab.cli.main import main  # noqa: E402 - found on the path above

if __name__ == "__main__":
    main()
