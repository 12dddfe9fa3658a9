"""A default that its own key would not accept is found before a Session is built with
it."""

import sys
import textwrap

import pytest
from pydantic import Field

from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.spec.schema.block import Block, wrong_default
from slm_lab.spec.schema.fields import Int
from slm_lab.spec.schema.net import NetSpec
from tests.faults.lab import LAB, call, write_spec
from tests.support import ppo


class WrongType(NetSpec):
    width: Int = Field("64", ge=1, description="units")


class OutOfBounds(Block):
    share: float = Field(1.5, ge=0, le=1, description="a share")
    needed: int = Field(description="has no default")


class Right(Block):
    share: float = Field(0.5, ge=0, le=1, description="a share")
    needed: int = Field(description="has no default")


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (WrongType, "width = '64': must be a whole number"),
        (OutOfBounds, "share = 1.5: must be <= 1"),
        (Right, None),
    ],
)
def test_a_wrong_default_is_named(model, line):
    assert wrong_default(model) == line


@pytest.mark.parametrize(
    "registry", [ALGORITHMS, MEMORIES, NETS], ids=lambda each: each.kind
)
def test_the_defaults_of_the_labs_own_models_are_right(registry):
    models = registry.models(Block)
    assert models
    for name, model in models.items():
        assert wrong_default(model) is None, name


@pytest.mark.medium
def test_spec_check_says_which_default_of_a_plug_in_is_wrong(tmp_path):
    (tmp_path / "my_net.py").write_text(
        textwrap.dedent(
            """
            from pydantic import Field
            from slm_lab.agent.net.mlp import MLPNet
            from slm_lab.core.registry import NETS
            from slm_lab.spec.schema.fields import Int
            from slm_lab.spec.schema.net import NetSpec

            class WideSpec(NetSpec):
                width: Int = Field("64", ge=1, description="units")

            class Wide(MLPNet):
                Params = WideSpec

            NETS.offer("Wide", "my_net:Wide")
            """
        )
    )
    spec = ppo()
    spec["agent"]["net"] = {
        "type": "Wide",
        "optim_spec": {"name": "GlobalAdam", "lr": 1e-3},
    }
    file = write_spec(tmp_path, spec)
    for words in (["spec", "check", str(file)], ["run", str(file), "small", "train"]):
        done = call([str(LAB), *words, "--import", "my_net"], tmp_path)
        assert done.code == 2
        assert (
            "agent.net.type = 'Wide': cannot be used: a default in the model of its "
            "keys, my_net.WideSpec, is wrong: width = '64': must be a whole number"
        ) in done.out + done.err
    assert "my_net" not in sys.modules
