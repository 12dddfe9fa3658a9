"""Blocks of a torch class: its name, with its arguments beside it."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import override

from slm_lab.spec.schema.block import Block, error_line, key_error, missing_key_error, spec_errors
from slm_lab.spec.schema.messages import unknown_name
from slm_lab.spec.torch_table import Kind, argument_problems, entries, with_whole_numbers

KIND_WORDS: Mapping[Kind, str] = {
    "optimizers": "an optimizer",
    "schedulers": "a learning-rate scheduler",
    "losses": "a loss",
}


class TorchPart(Block):
    """`{"name": …, argument: value, …}`; the model collects the arguments in `args`."""

    KIND: ClassVar[Kind] = "losses"

    name: str = Field(description="name of the class")
    args: dict[str, Any] = Field({}, description="its arguments, checked against torch's signature")

    @model_validator(mode="wrap")
    @classmethod
    def _gather_args(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        if "name" not in data:
            raise missing_key_error("name", f"is missing: the name of {KIND_WORDS[cls.KIND]}", data)
        args = data.get("args", {})
        if not isinstance(args, Mapping):
            raise key_error("args", "must be a block {…}", args)
        args = {**args, **{k: v for k, v in data.items() if k not in ("name", "args")}}
        name = data["name"]
        if isinstance(name, str):
            cls._check(name, args)
            args = cls._complete(name, args)
        return handler({"name": name, "args": args})

    @classmethod
    def _complete(cls, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        return with_whole_numbers(args)

    @classmethod
    def _check(cls, name: str, args: Mapping[str, Any]) -> None:
        known = entries(cls.KIND)
        if name not in known:
            message = unknown_name(f"name for {KIND_WORDS[cls.KIND]}", name, sorted(known))
            raise key_error("name", message, name)
        if reason := known[name].refused:
            raise key_error("name", reason, name)
        wrong = [
            error_line((key,), message, args.get(key, ...))
            for key, message in argument_problems(known[name], args)
        ]
        if wrong:
            raise spec_errors(wrong)

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        return {"name": self.name, **self.args}

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

    @classmethod
    @override
    def _complete(cls, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Adds torch's default learning rate if there is none."""
        lr = entries(cls.KIND)[name].arguments["lr"].default
        return with_whole_numbers({"lr": lr, **args})


class LRSchedulerSpec(TorchPart):
    """A torch.optim.lr_scheduler, or `LinearToZero`, `LinearToMin` on the frame clock."""

    KIND = "schedulers"


class LossSpec(TorchPart):
    """A loss of torch.nn for the value function."""

    KIND = "losses"
