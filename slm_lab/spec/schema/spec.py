"""One experiment: agent, env, meta, and the search over them."""

from typing import Any

from pydantic import Field

from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.meta import MetaSpec


class Spec(Block):
    """A spec: everything that an experiment depends on, checked and immutable."""

    agent: AgentSpec = Field(description="what learns")
    env: EnvSpec = Field(description="what it learns to act in")
    meta: MetaSpec = Field(MetaSpec(), description="how it is run")
    search: dict[str, Any] | None = Field(
        None, description="space of a search: {path}__{sampler}: arguments"
    )
    name: str = Field("", description="label; the key of the spec in its file")

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON data with every default written out; `parse_spec` reads it back."""
        data: dict[str, Any] = self.model_dump(mode="json")
        if self.search is None:
            del data["search"]
        return data
