"""Blocks of a torch class: its name, with its arguments beside it."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import override

from slm_lab.spec.schema.block import (
    Block,
    error_line,
    given_value,
    key_error,
    lines_of,
    missing_key_error,
    raise_errors,
)
from slm_lab.spec.schema.fields import Count
from slm_lab.spec.schema.messages import unknown_name
from slm_lab.spec.schema.torch_table import (
    Kind,
    argument_problems,
    entries,
    with_whole_numbers,
)

KIND_WORDS: Mapping[Kind, str] = {
    "optimizers": "an optimizer",
    "schedulers": "a learning-rate scheduler",
    "losses": "a loss",
}


LOOKAHEAD = "Lookahead"
"""The optimizer that is not of torch."""

INSIDE = "RAdam"
"""The optimizer inside Lookahead, unless a file names another."""

OTHER_NAMES = {"Ranger": 'is Lookahead around RAdam: {"name": "Lookahead", "k": 6, …}'}
"""Optimizers of other libraries, and how to write them."""


class TorchPart(Block):
    """`{"name": …, argument: value, …}`; arguments are extra keys of the model."""

    model_config = ConfigDict(extra="allow")

    KIND: ClassVar[Kind] = "losses"
    WRITTEN_OUT: ClassVar[tuple[str, ...]] = ()
    """Arguments that get torch's default if the file leaves them out."""
    OTHER_CLASSES: ClassVar[tuple[str, ...]] = ()
    """The names of classes that are not of torch."""

    name: str = Field(description="name of the class")

    @property
    def args(self) -> dict[str, Any]:
        """The arguments, all valid for the class."""
        return dict(self.model_extra or {})

    @model_validator(mode="before")
    @classmethod
    def _checked(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        if "name" not in data:
            raise missing_key_error(
                "name", f"is missing: the name of {KIND_WORDS[cls.KIND]}", data
            )
        args = data.get("args", {})
        if not isinstance(args, Mapping):
            raise key_error("args", "must be a block {…}", args)
        args = {**args, **{k: v for k, v in data.items() if k not in ("name", "args")}}
        name = data["name"]
        if not isinstance(name, str):
            return {"name": name}
        return {"name": name, **cls._checked_arguments(name, args)}

    @classmethod
    def _checked_arguments(cls, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the class `name`, with the defaults that are written out.
        Raises ValidationError for an unknown class and for wrong arguments."""
        known = entries(cls.KIND)
        if name not in known:
            kind = f"name for {KIND_WORDS[cls.KIND]}"
            names = sorted([*known, *cls.OTHER_CLASSES])
            message = OTHER_NAMES.get(name) or unknown_name(kind, name, names)
            raise key_error("name", message, name)
        entry = known[name]
        if entry.refused:
            raise key_error("name", entry.refused, name)
        raise_errors(
            error_line((key,), message, args.get(key, ...))
            for key, message in argument_problems(entry, args)
        )
        defaults = {key: entry.arguments[key] for key in cls.WRITTEN_OUT}
        return with_whole_numbers({**defaults, **args})

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """One alternative per class, so that an editor completes its arguments."""
        return {
            "type": "object",
            "title": cls.__name__,
            "oneOf": [
                entry.json_schema(name)
                for name, entry in entries(cls.KIND).items()
                if not entry.refused
            ],
        }


class OptimSpec(TorchPart):
    """A torch.optim optimizer, or `Lookahead` around one. `GlobalAdam` and
    `GlobalRMSprop` work in every mode."""

    KIND = "optimizers"
    WRITTEN_OUT = ("lr",)
    OTHER_CLASSES = (LOOKAHEAD,)

    def stepping(self, path: str) -> "tuple[str, OptimSpec]":
        """The optimizer that takes the steps, and its path, when this one is at `path`.
        It is this one itself, or the one inside Lookahead."""
        if self.name != LOOKAHEAD:
            return path, self
        return f"{path}.optimizer", OptimSpec.model_validate(self.args["optimizer"])

    def with_defaults(self, lr: float) -> "OptimSpec":
        """The optimizer with this learning rate, torch's defaults of all other
        arguments, and no weight decay. Lookahead keeps its own arguments."""
        args: dict[str, Any] = {"lr": lr}
        _, inside = self.stepping("")
        if "weight_decay" in entries(self.KIND)[inside.name].arguments:
            args["weight_decay"] = 0.0
        if inside is not self:
            lookahead_args = {key: self.args[key] for key in LookaheadSpec.model_fields}
            args |= {"optimizer": inside.name, **lookahead_args}
        return OptimSpec.model_validate({"name": self.name, **args})

    @classmethod
    @override
    def _checked_arguments(cls, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        if name == LOOKAHEAD:
            return _lookahead_arguments(args)
        return super()._checked_arguments(name, args)

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        schema["oneOf"].append(LookaheadSpec.json_schema())
        return schema


class LookaheadSpec(Block):
    """Arguments of `Lookahead` (arXiv:1907.08610), which is around another optimizer.
    Beside them are the learning rate `lr` and the `optimizer` that takes the fast
    steps, by default RAdam. `optimizer` is its name, or a block of its name and
    arguments."""

    k: Count = Field(5, description="fast steps for each step of the slow weights")
    alpha: float = Field(
        0.5, gt=0, le=1, description="α: slow ← slow + α (fast − slow)"
    )

    @classmethod
    def json_schema(cls) -> JsonSchemaValue:
        """The JSON Schema of `Lookahead` with its arguments. Arguments of the optimizer
        inside may stand beside them."""
        optimizer = {
            "default": INSIDE,
            "anyOf": [{"type": "string"}, {"type": "object"}],
        }
        return {
            "type": "object",
            "properties": {
                "name": {"const": LOOKAHEAD},
                "lr": {"type": "number"},
                "optimizer": optimizer,
                **cls.model_json_schema()["properties"],
            },
            "required": ["name"],
        }


def _lookahead_arguments(args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of Lookahead in their one form. The block of the optimizer inside
    has all of that optimizer's arguments, except for the learning rate. SLM Lab's files
    write all of them beside the name of the optimizer. Raises ValidationError for wrong
    arguments."""
    written = args.get("optimizer", INSIDE)
    block = {"name": written} if isinstance(written, str) else written
    if not isinstance(block, Mapping):
        message = "must be the name of an optimizer, or a block {…}"
        raise key_error("optimizer", message, written)
    if block.get("name") == LOOKAHEAD:
        message = "cannot be a second Lookahead"
        raise key_error("optimizer", message, written)
    lookahead_args = {
        key: args[key] for key in LookaheadSpec.model_fields if key in args
    }
    beside = {
        key: args[key] for key in args if key not in ("optimizer", *lookahead_args)
    }
    lines = [
        error_line((key,), "is given in the block optimizer too; keep one", args[key])
        for key in beside
        if key in block
    ]
    raise_errors(lines)
    try:
        inside = OptimSpec.model_validate({**block, **beside})
    except ValidationError as error:
        for details in error.errors(include_url=False):
            place = _place_inside(details["loc"], written, beside)
            lines.append(error_line(place, details["msg"], given_value(details)))
    try:
        lookahead = LookaheadSpec.model_validate(lookahead_args)
    except ValidationError as error:
        lines += lines_of(error)
    raise_errors(lines)
    arguments = inside.args
    rate = arguments.pop("lr")
    optimizer = {"name": inside.name, **arguments}
    return {"lr": rate, "optimizer": optimizer, **dict(lookahead)}


def _place_inside(
    loc: tuple[int | str, ...], written: object, beside: Mapping[str, Any]
) -> tuple[int | str, ...]:
    """The place in a file of what is wrong with the optimizer inside Lookahead."""
    if loc[0] in beside:
        return loc
    if isinstance(written, str):
        return ("optimizer",)
    return ("optimizer", *loc)


class LRSchedulerSpec(TorchPart):
    """A torch.optim.lr_scheduler, or `LinearToZero`, `LinearToMin` on the frame
    clock."""

    KIND = "schedulers"


class LossSpec(TorchPart):
    """A loss of torch.nn for the value function."""

    KIND = "losses"
