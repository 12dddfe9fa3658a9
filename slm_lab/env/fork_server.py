"""For the fork server alone, which imports it first: it dies with the process that started it.

Else it would live on as long as one of the workers that it has forked, and a worker that hangs in
its environment, and so does not see that nobody listens any more, would never end.
"""

import os

from slm_lab.core.parent import die_with_parent

die_with_parent(os.getppid())
