"""`env`: the environment, the number of copies, and conversions of observations and
rewards."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails

from slm_lab.core.plugins import PETTINGZOO, code_name
from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.block import (
    Block,
    key_error,
    lines_of,
    raise_errors,
    spec_error,
)
from slm_lab.spec.schema.fields import (
    AnyList,
    BoolOrNames,
    Count,
    Int,
    IntList,
    SignOrNumber,
    StrList,
    numbers_up_to,
)
from slm_lab.spec.schema.rules import Limit, Needed, NoEffect
from slm_lab.spec.schema.schedule import ScheduleSpec, is_schedule


def _width_and_height(size: tuple[int, ...]) -> tuple[int, ...]:
    if len(size) != 2 or min(size) < 1:
        raise spec_error("must be [width, height] in pixels")
    message = bounds.PIXELS.refusal(size)
    if message:
        raise spec_error(message)
    return size


ImageSize: TypeAlias = Annotated[
    IntList, AfterValidator(_width_and_height), numbers_up_to(bounds.PIXELS)
]


def _names_of_columns(keys: tuple[str, ...]) -> tuple[str, ...]:
    for key in keys:
        fits = 0 < len(key.encode()) <= bounds.INFO_KEY_BYTES and key == key.strip()
        if (
            not fits
            or not key.isprintable()
            or set(key) & set(',"')
            or keys.count(key) > 1
        ):
            form = f"1 to {bounds.INFO_KEY_BYTES} bytes without commas and quotes"
            raise spec_error(
                f'"{key}" names no column: each must differ and have {form}'
            )
    return keys


def _named_wrappers(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    for entry in entries:
        name = entry
        if isinstance(entry, Mapping):
            name = entry.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[\w.]+:[\w.]+", name):
            form = (
                'each entry must be "package.module:Class", or a block with this as '
                "its name"
            )
            raise spec_error(f"{form} and the arguments beside it")
    return entries


def _wrapper_arguments(block: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments beside the name of a wrapper, and the arguments in `kwargs`,
    whatever their names."""
    arguments = {key: value for key, value in block.items() if key != "name"}
    if isinstance(arguments.get("kwargs"), Mapping):
        arguments |= arguments.pop("kwargs")
    return arguments


def arguments_beside(env: Mapping[str, Any]) -> dict[str, Any]:
    """The block `env`, with the arguments in `kwargs` beside its keys. Those stay in
    `kwargs` that are called like keys of the lab, or that have another value beside
    it."""
    beside: dict[str, Any] = {}
    within: dict[str, Any] = {}
    for key, value in env["kwargs"].items():
        is_apart = key in EnvSpec.model_fields or env.get(key, value) != value
        (within if is_apart else beside)[key] = value
    return {**env, **beside, "kwargs": within}


class EnvSpec(Block):  # type: ignore[no-redef]  # the plugin of pydantic adds **kwargs
    """Other keys are arguments of the environment (`gymnasium.make_vec`). Keys that it
    does not accept are rejected. Arguments may also stand in the block `kwargs`, where
    no name is a key of the lab. A number may be a schedule: each copy takes its value
    when it is reset."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(
        min_length=1,
        max_length=bounds.ENV_NAME,
        description='Gymnasium id, "module:id", "envpool:id", "playground/task" or '
        '"pettingzoo:module"',
    )
    num_envs: Annotated[
        Count,
        bounds.ENVS,
        Limit(
            sign="<=",
            of=1024,
            text=': each copy is a process with vectorization_mode "async"',
            when="env.is_async",
        ),
    ] = Field(
        1,
        description="N, copies stepped together; of several agents, each copy has all",
    )
    max_t: Annotated[Count | None, bounds.FRAMES] = Field(
        None, description="step limit of an episode; null: the environment's"
    )
    max_frame: Annotated[Count, bounds.FRAMES] = Field(
        description="budget of the run in frames: environment steps summed over copies "
        "and agents"
    )
    normalize_obs: BoolOrNames = Field(
        False,
        description="normalise observations to mean 0 and deviation 1 by running "
        "statistics, or the parts of them in a list; not for images, which the net's "
        "normalize scales",
    )
    normalize_reward: bool = Field(
        False,
        description="divide rewards by the running deviation of the discounted return",
    )
    clip_obs: Annotated[
        float | None,
        NoEffect(
            "bounds normalised observations, but normalize_obs is false",
            unless="env.normalize_obs",
        ),
    ] = Field(
        10.0, gt=0, description="bound of normalised observations, ±; null: no clipping"
    )
    clip_reward: SignOrNumber = Field(
        None, description='bound of rewards, ±; "sign" or true: the sign of the reward'
    )
    reward_scale: SignOrNumber = Field(
        None, description='factor of rewards; "sign": the sign of the reward'
    )
    frame_op: Literal["stack", "concat"] | None = Field(
        None,
        description="join the last frame_op_len observations: along a new first axis "
        "(stack), or along the existing one (concat)",
    )
    frame_op_len: Annotated[
        Count | None,
        bounds.FRAMES_JOINED,
        Needed("frame_op needs the number of observations to join", when="frame_op"),
        NoEffect(
            "counts stacked observations, but frame_op is null", unless="env.frame_op"
        ),
    ] = Field(None, description="number of joined observations")
    image_downsize: ImageSize | None = Field(
        None, description="resize images to [width, height] in pixels, by area"
    )
    image_channels: Literal["first", "last"] | None = Field(
        None,
        description="where images have their channels: (C, H, W) or (H, W, C), alone "
        "and in stacks; null: as the shape shows",
    )
    vectorization_mode: Literal["native", "sync", "async"] | None = Field(
        None, description="how copies are stepped; null: native if available, else sync"
    )
    backend: Annotated[
        Literal["gymnasium", "envpool", "torch"],
        NoEffect(
            'vectorization_mode "{own.vectorization_mode}" steps single environments, '
            "those of Gymnasium where it has them",
            when="env.steps_singly",
        ),
    ] = Field(
        "gymnasium",
        description="library that steps the environment: envpool in place of a native "
        "vector version; torch for classic control, all copies at once",
    )
    wrappers: Annotated[AnyList, AfterValidator(_named_wrappers)] = Field(
        (),
        description="wrappers of each single environment, the innermost first: "
        '"module:Class", or '
        "a block with this name and the arguments",
    )
    info_keys: Annotated[StrList, AfterValidator(_names_of_columns)] = Field(
        (),
        description="keys of an episode's last info whose numbers become columns; "
        "dots lead into blocks",
    )
    action_mask: str | None = Field(
        None,
        min_length=1,
        description="where the environment tells which actions are allowed now: "
        '"info.KEY", or a part of its observation; 1 for each value of a Discrete or '
        "MultiDiscrete action that is allowed, else 0 (arXiv:2006.14171)",
    )

    index_key: str | None = Field(
        None,
        min_length=1,
        description="argument of the environment that receives the number of each "
        "copy, such as an offset of its port; copies that may exist at the same time "
        "in a run have different ones",
    )
    first_index: Annotated[Int, bounds.ENVS] = Field(
        0, ge=0, description="number of the run's first copy, see index_key"
    )
    kwargs: dict[str, Any] = Field(
        {},
        description="arguments of the environment, such as one that is called like a "
        "key of this block",
    )
    reset_options: dict[str, Any] | None = Field(
        None, description="the options of every reset of each single environment"
    )

    @model_validator(mode="before")
    @classmethod
    def _with_arguments_beside(cls, data: Any) -> Any:
        """Takes arguments out of `kwargs` that need not stand there."""
        if not isinstance(data, Mapping) or not isinstance(data.get("kwargs"), Mapping):
            return data
        data = arguments_beside(data)
        for key, value in data["kwargs"].items():
            if key not in cls.model_fields:
                raise key_error(
                    key, f"env.kwargs makes it {value}; keep one of the two", data[key]
                )
        return data

    @model_validator(mode="after")
    def _has_valid_schedules(self) -> Self:
        wrong: list[InitErrorDetails] = []
        blocks = {(): self.model_extra or {}, ("kwargs",): self.kwargs}
        for path, arguments in blocks.items():
            for key, value in arguments.items():
                try:
                    if is_schedule(value):
                        ScheduleSpec.model_validate(value)
                except ValidationError as error:
                    wrong += lines_of(error, *path, key)
        raise_errors(wrong)
        return self

    @model_validator(mode="after")
    def _can_be_made_one_by_one(self) -> Self:
        is_together = self.backend != "gymnasium" and self.vectorization_mode is None
        reason = self.single_only
        if self.backend == "torch" and self.action_mask is not None:
            reason = reason or "action_mask"
        if reason and (is_together or self.vectorization_mode == "native"):
            key = "vectorization_mode"
            other = "sync"
            if is_together:
                key = "backend"
                other = "gymnasium"
            message = f'cannot be used with {reason}; use "{other}"'
            raise key_error(key, message, getattr(self, key))
        return self

    @model_validator(mode="after")
    def _numbers_its_copies(self) -> Self:
        if self.index_key is not None and self.index_key in self.arguments:
            message = (
                "each copy receives its number, so the argument cannot be given "
                "beside it"
            )
            raise key_error("index_key", message, self.index_key)
        return self

    @property
    def has_agents(self) -> bool:
        """Whether a copy has several agents, whose number only the environment
        knows."""
        return self.name.startswith(PETTINGZOO)

    @property
    def steps_singly(self) -> bool:
        """Whether the spec asks for single environments, stepped one by one."""
        return self.vectorization_mode in ("sync", "async")

    @property
    def is_async(self) -> bool:
        """Whether each copy is stepped in a process of its own."""
        return self.vectorization_mode == "async"

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the environment. Schedules are at their start."""
        return {**self._given_arguments, **self.numbers_at(0)}

    @property
    def _given_arguments(self) -> dict[str, Any]:
        return {**(self.model_extra or {}), **self.kwargs}

    @property
    def schedules(self) -> dict[str, ScheduleSpec]:
        """The schedules among the arguments, by name."""
        return {
            key: ScheduleSpec.model_validate(value)
            for key, value in self._given_arguments.items()
            if is_schedule(value)
        }

    @property
    def changing_argument(self) -> str | None:
        """The name of the first argument that changes over the run; None if none
        does."""
        names = (key for key, schedule in self.schedules.items() if schedule.changes)
        return next(names, None)

    def numbers_at(self, frame: int) -> dict[str, float]:
        """The values of the schedules at a frame of the trial's clock."""
        return {
            key: schedule.build().at(frame) for key, schedule in self.schedules.items()
        }

    def at_frame(self, frame: int) -> Self:
        """A copy whose arguments stay as they are at a frame of the trial's clock."""
        numbers = self.numbers_at(frame)
        constants = {key: {"start_val": number} for key, number in numbers.items()}
        return self.with_arguments(constants)

    def with_arguments(self, arguments: Mapping[str, Any]) -> Self:
        """A copy with further arguments of the environment, whatever their names."""
        return self.model_copy(update={"kwargs": {**self.kwargs, **arguments}})

    @property
    def single_only(self) -> str | None:
        """The key for which environments must be made one by one; None if there is
        none."""
        keys = (
            "wrappers",
            "info_keys",
            "index_key",
            "reset_options",
        )
        key = next((key for key in keys if getattr(self, key)), None)
        if key is None and self.changing_argument is not None:
            return f"a schedule of {self.changing_argument}"
        return key

    def arguments_of(self, copy: int) -> dict[str, Any]:
        """The arguments of the copy with this number among those made together."""
        number = (
            {} if self.index_key is None else {self.index_key: self.first_index + copy}
        )
        return {**number, **self.arguments}

    @property
    def wrapped_by(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """The name and the arguments of each wrapper, the innermost first."""
        blocks = [{"name": w} if isinstance(w, str) else w for w in self.wrappers]
        return tuple((block["name"], _wrapper_arguments(block)) for block in blocks)

    @property
    def code_names(self) -> tuple[str, ...]:
        """The names that may have modules in them: the environment's, unless the lab
        itself finds it, and its wrappers'."""
        names = filter(None, [code_name(self.name)])
        return (*names, *(name for name, _ in self.wrapped_by))
