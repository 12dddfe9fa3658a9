"""The net with a memory."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field
from typing_extensions import override

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.fields import Count, Int, must_be_false
from slm_lab.spec.schema.layers import Widths, weights_between
from slm_lab.spec.schema.mlp import MLPNetSpec
from slm_lab.spec.schema.net import NEEDS_EMBEDDING, NetSpec
from slm_lab.spec.schema.rules import ANY, Limit, Refused

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""The linear maps in a recurrent cell."""

OneDirection: TypeAlias = Annotated[
    bool, must_be_false("an agent acts before it has seen later observations")
]


class RecurrentNetSpec(NetSpec):
    """Fully connected layers, then recurrent ones. As the encoder of a part it has the
    layers of the net behind it."""

    SAME_FOR_BOTH = (*NetSpec.SAME_FOR_BOTH, "seq_len", "burn_in")
    LEGACY = MLPNetSpec.LEGACY
    ENCODES = True
    RECURRENT = True

    type: Annotated[
        str,
        Refused(
            "{algorithm.name} learns from single steps; it is for PPO, VMPO, "
            "PQN, ActorCritic, Reinforce, VanillaDQN, DQN and DoubleDQN",
            unless="algorithm.LEARNS_SEQUENCES",
            value=ANY,
            at="agent.net",
        ),
        NEEDS_EMBEDDING,
    ] = Field(description="kind of net")

    cell_type: Literal["GRU", "LSTM", "RNN"] = Field(
        "GRU", description="recurrent cell"
    )
    fc_hid_layers: Widths = Field(
        (), description="units per fully connected layer before the cell"
    )
    rnn_hidden_size: Annotated[Count, bounds.WIDTH] = Field(
        64, description="units of the recurrent state"
    )
    rnn_num_layers: Annotated[Count, bounds.STACKED] = Field(
        1, description="recurrent layers"
    )
    bidirectional: OneDirection = Field(
        False, description="must be false: an agent has not seen later observations"
    )
    seq_len: Annotated[Count, bounds.SEQUENCE] = Field(
        4, description="length of a sequence: the steps of backpropagation through time"
    )
    burn_in: Annotated[
        Int,
        Limit(
            sign="<",
            of="seq_len",
            text=": only the remaining steps are learned from",
        ),
        Refused(
            "is for replay memories, and this one's rollouts are used once; remove it",
            unless="blocks.has_replay",
            at="agent.net",
        ),
    ] = Field(
        0,
        ge=0,
        description="replay memories: first steps of a sequence, which only update "
        "the stored state",
    )

    @property
    def state_size(self) -> int:
        """Size of the recurrent state; an LSTM has two vectors."""
        return (
            self.rnn_num_layers
            * self.rnn_hidden_size
            * (2 if self.cell_type == "LSTM" else 1)
        )

    @property
    @override
    def sequence_length(self) -> int:
        return self.seq_len

    @property
    @override
    def multiplies_in_half(self) -> bool:
        return any(weights_between(net.fc_hid_layers) for net in self.for_roles)

    @override
    def hidden_weights(self) -> int:
        size = self.rnn_hidden_size
        first = size * (sum(self.fc_hid_layers[-1:]) + size)
        others = (self.rnn_num_layers - 1) * 2 * size**2
        return GATES[self.cell_type] * (first + others) + weights_between(
            self.fc_hid_layers
        )
