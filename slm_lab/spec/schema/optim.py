"""Blocks of a torch class: its name, with its arguments beside it."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import override

from slm_lab.spec.schema.block import (
    Block,
    error_line,
    key_error,
    missing_key_error,
    raise_errors,
)
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


OF_SLM_LAB = {
    "Lookahead": "is not available; name the optimizer that it wraps, such as RAdam or "
    "GlobalAdam"
}
"""Classes that old files name and torch does not have."""


class TorchPart(Block):
    """`{"name": …, argument: value, …}`; arguments are extra keys of the model."""

    model_config = ConfigDict(extra="allow")

    KIND: ClassVar[Kind] = "losses"
    WRITTEN_OUT: ClassVar[tuple[str, ...]] = ()
    """Arguments that get torch's default if the file leaves them out."""

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
        known = entries(cls.KIND)
        if not isinstance(name, str):
            return {"name": name}
        if name not in known:
            kind = f"name for {KIND_WORDS[cls.KIND]}"
            message = OF_SLM_LAB.get(name) or unknown_name(kind, name, sorted(known))
            raise key_error("name", message, name)
        entry = known[name]
        if entry.refused:
            raise key_error("name", entry.refused, name)
        raise_errors(
            error_line((key,), message, args.get(key, ...))
            for key, message in argument_problems(entry, args)
        )
        defaults = {key: entry.arguments[key] for key in cls.WRITTEN_OUT}
        return {"name": name, **with_whole_numbers({**defaults, **args})}

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
    """A torch.optim optimizer; `GlobalAdam` and `GlobalRMSprop` work in every mode."""

    KIND = "optimizers"
    WRITTEN_OUT = ("lr",)


class LRSchedulerSpec(TorchPart):
    """A torch.optim.lr_scheduler, or `LinearToZero`, `LinearToMin` on the frame
    clock."""

    KIND = "schedulers"


class LossSpec(TorchPart):
    """A loss of torch.nn for the value function."""

    KIND = "losses"
