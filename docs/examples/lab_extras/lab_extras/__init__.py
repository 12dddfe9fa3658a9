"""Parts for SLM Lab from outside of it: an algorithm, a net, an environment.

Installed, they are found through the entry points of pyproject.toml. The lines below serve a
package that is merely on the path: `--import lab_extras` runs them, and so does the
environment's name with the module in front, `lab_extras:Target-v0`.
"""

import gymnasium

from lab_extras.awr import AWR
from lab_extras.residual_mlp import ResidualMLP
from slm_lab.core.registry import ALGORITHMS, NETS

ALGORITHMS.register("AWR", AWR.Params, "lab_extras.awr:AWR")
NETS.register("ResidualMLP", ResidualMLP.Params, "lab_extras.residual_mlp:ResidualMLP")
gymnasium.register("Target-v0", entry_point="lab_extras.target:Target")
