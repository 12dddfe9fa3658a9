"""A whole spec: agent, env, meta, and the search over them."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.block import Block, spec_error
from slm_lab.spec.schema.bounds import NAME_BYTES
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.meta import MetaSpec

ROWS = 200
"""Rows of a Session if the spec has no log_frequency."""


def _fits_in_file_names(name: str) -> str:
    size = len(name.encode())
    if size > NAME_BYTES:
        why = "the name of every file of the run begins with it"
        raise spec_error(f"takes {size} bytes of a file name, at most {NAME_BYTES}: {why}")
    return name


class Spec(Block):
    """A spec: the whole configuration of an experiment, checked and immutable."""

    agent: AgentSpec = Field(description="the agent")
    env: EnvSpec = Field(description="the environment")
    meta: MetaSpec = Field(default_factory=MetaSpec, description="how it is run")
    search: dict[str, Any] | None = Field(
        None, description="space of a search: {path}__{sampler}: arguments"
    )
    name: Annotated[str, AfterValidator(_fits_in_file_names)] = Field(
        "", description="label; the key of the spec in its file"
    )

    @property
    def default_log_frequency(self) -> int:
        """Frames between two rows of a Session for `ROWS` rows."""
        return max(1, self.meta.share_of(self.env.max_frame) // ROWS)

    @property
    def logs_by_default(self) -> bool:
        """Whether the log frequency equals the default."""
        return self.log_frequency == self.default_log_frequency

    @property
    def log_frequency(self) -> int:
        """Frames between two rows of a Session."""
        given = self.meta.log_frequency
        return self.default_log_frequency if given is None else given

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON data with all defaults; `parse_spec` reads it."""
        data: dict[str, Any] = self.model_dump(mode="json")
        if self.search is None:
            del data["search"]
        return data
