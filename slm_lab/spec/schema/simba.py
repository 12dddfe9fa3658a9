"""The residual net of vectors."""

from typing import Annotated, TypeAlias

from pydantic import Field
from typing_extensions import override

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.fields import Count, must_be_false
from slm_lab.spec.schema.mlp import MLPNetSpec
from slm_lab.spec.schema.net import NetSpec
from slm_lab.spec.schema.rules import ANY, Refused, Suspicious

NormalisedAlready: TypeAlias = Annotated[
    bool, must_be_false("its blocks are normalised by layer")
]
"""A key for a further norm, which must be off: the blocks have their own."""


class SimBaNetSpec(NetSpec):
    """SimBa (arXiv:2410.09754): a linear embedding, residual blocks with layer
    normalisation, then linear output layers. Set `env.normalize_obs`, which is a part
    of it. The embedding and the output layers begin as orthogonal matrices, the
    blocks as `kaiming_normal_` fills them."""

    LEGACY = MLPNetSpec.LEGACY
    HAS_EMBEDDING = True

    type: Annotated[
        str,
        Refused(
            "{algorithm.name} normalises its nets by batch, and this net is normalised "
            "by layer; use MLPNet, or SoftActorCritic",
            when="algorithm.ALWAYS_NORMALISES",
            value=ANY,
        ),
        Suspicious(
            "is without the running statistics of observations that are a part of "
            "{own.type}; set env.normalize_obs",
            unless="env.normalize_obs",
            value=ANY,
        ),
    ] = Field(description="kind of net")
    init_fn: None = Field(None, description="must be null: the net has its own")
    layer_norm: NormalisedAlready = Field(
        False, description="must be false: the blocks are normalised already"
    )
    batch_norm: NormalisedAlready = Field(
        False, description="must be false: the blocks are normalised by layer"
    )
    norm_place: None = Field(
        None, description="must be null: a norm stands before every block"
    )
    noisy: Annotated[bool, must_be_false("use MLPNet, or epsilon_greedy")] = Field(
        False, description="must be false: its layers have no noise"
    )
    width: Annotated[Count, bounds.WIDTH] = Field(
        128, description="units that pass from block to block"
    )
    num_blocks: Annotated[Count, bounds.STACKED] = Field(
        1, description="residual blocks"
    )
    expansion: Annotated[Count, bounds.WIDTH] = Field(
        4, description="units of a block's hidden layer, in multiples of width"
    )

    @override
    def hidden_weights(self) -> int:
        return self.num_blocks * 2 * self.expansion * self.width**2
