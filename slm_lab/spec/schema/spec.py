"""A whole spec: agent, env, meta, and the search over them."""

from typing import Annotated, Any, Self

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
        raise spec_error(
            f"takes {size} bytes of a file name, at most {NAME_BYTES}: {why}"
        )
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
        frames = self.meta.log_frequency
        if frames is None:
            return self.default_log_frequency
        return frames

    @property
    def kept_frames(self) -> tuple[int, ...]:
        """The total frames of a training at which a checkpoint is kept for forks."""
        return self.meta.kept_frames(self.env.max_frame)

    @property
    def training_copies(self) -> int:
        """Copies of the environment that train in the process of one Session."""
        if self.meta.has_local_actors:
            return self.env.num_envs * self.meta.max_session
        return self.env.num_envs

    @property
    def most_copies(self) -> int:
        """The most copies that a Session steps together."""
        return max(self.env.num_envs, self.meta.rigorous_eval)

    @property
    def unroll_length(self) -> int:
        """Steps of each environment in one unroll of an actor."""
        return self.agent.algorithm.unroll_length(self.meta)

    def as_learned(self) -> Self:
        """The spec that a learner is built from. If `train_ratio` is a number, it sets
        the gradient steps per frame in place of the algorithm's own keys. If it is
        null, an event has one batch. Else the spec is unchanged."""
        algorithm = self.agent.algorithm.for_learner(self.meta)
        if algorithm is self.agent.algorithm:
            return self
        agent = self.agent.model_copy(update={"algorithm": algorithm})
        return self.model_copy(update={"agent": agent})

    def numbered(self, first: int) -> Self:
        """The spec of copies with numbers from `first` on, see `env.index_key`."""
        first_index = self.env.first_index + first
        return self.model_copy(
            update={"env": self.env.model_copy(update={"first_index": first_index})}
        )

    def of_session(self, trial: int, session: int) -> Self:
        """The spec as one of the Sessions runs it. Each Session has a block of numbers
        for its copies. They train, evaluate, film, and give a learner its spaces."""
        block = self.training_copies + self.meta.rigorous_eval + 2
        return self.numbered((trial * self.meta.num_sessions + session) * block)

    def of_evaluations(self) -> Self:
        """The spec of the Session's evaluations."""
        return self.numbered(self.training_copies)

    def of_videos(self) -> Self:
        """The spec of the Session's videos."""
        return self.numbered(self.training_copies + self.meta.rigorous_eval)

    def of_spaces(self) -> Self:
        """The spec of the copy that gives a learner its spaces."""
        return self.numbered(self.training_copies + self.meta.rigorous_eval + 1)

    def of_saved_agent(self, trial: int) -> Self:
        """The spec of commands that use a saved agent, maybe while the run still
        trains."""
        return self.of_session(max(trial + 1, self.meta.max_trial), 0)

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON data with all defaults; `parse_spec` reads it. Settings of
        modes of other packages are left out if the spec does not use them."""
        data: dict[str, Any] = self.model_dump(mode="json")
        for word in self.meta.unused_plug_ins:
            del data["meta"][word]
        if self.search is None:
            del data["search"]
        return data
