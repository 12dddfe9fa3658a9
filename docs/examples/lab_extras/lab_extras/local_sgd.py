"""Local SGD (arXiv:1805.09767): ranks learn alone, and average their parameters now and
then.

The spec checker imports this module, so it imports no torch.
"""

from pydantic import Field

from slm_lab.spec.modes import Mode
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.fields import Int


class LocalSGDSpec(Block):
    """Settings of the mode "local_sgd"."""

    sync_every: Int = Field(
        8, ge=1, description="H, training events between two averages of the parameters"
    )


LOCAL_SGD = Mode(
    "local_sgd",
    launch="lab_extras.local_sgd_ranks:train",
    cluster_launch="lab_extras.local_sgd_ranks:train_on_cluster",
    Params=LocalSGDSpec,
    member="rank",
    one_agent=True,
    has_ranks=True,
)
