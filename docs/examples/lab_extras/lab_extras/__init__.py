"""Parts for SLM Lab from outside of it: algorithms, a memory, a net, an environment,
a parallel mode.

Installed, they are found through the entry points of pyproject.toml. The lines below
serve a package that is merely on the path: `--import lab_extras` runs them, and so does
the environment's name with the module in front, `lab_extras:Target-v0`.
"""

import gymnasium

from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.spec.modes import MODES

ALGORITHMS.offer("AWR", "lab_extras.awr:AWR")
ALGORITHMS.offer("AdvantageLearning", "lab_extras.advantage_learning:AdvantageLearning")
MEMORIES.offer("Reservoir", "lab_extras.reservoir:Reservoir")
NETS.offer("ResidualMLP", "lab_extras.residual_mlp:ResidualMLP")
MODES.offer("local_sgd", "lab_extras.local_sgd:LOCAL_SGD")
gymnasium.register("Target-v0", entry_point="lab_extras.target:Target")
gymnasium.register("Gymnax-v0", vector_entry_point="lab_extras.gymnax_envs:Gymnax")
gymnasium.register("Brax-v0", vector_entry_point="lab_extras.brax_envs:Brax")
