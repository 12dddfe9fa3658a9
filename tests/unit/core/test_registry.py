"""Parts from installed packages: found by name, and every mistake is one line."""

import re
import sys

import pytest

from slm_lab.core.errors import LabError
from slm_lab.core.registry import Registry
from slm_lab.spec.modes import MODES
from slm_lab.spec.parse import parse
from slm_lab.spec.schema.agent import Registered
from slm_lab.spec.schema.algorithm import AlgorithmSpec, PlugInSpec
from tests.support import ppo
from tests.unit.spec.problems import assert_problem

GROUP = "slm_lab.algorithms"
GOOD = """
from slm_lab.spec.schema.algorithm import LearningSpec

class Good:
    class Params(LearningSpec):
        pass

    @classmethod
    def build(cls, context):
        return cls()
"""
FAULTY = {
    "a module that is missing": (
        "",
        "no_such_module_here:X",
        "no_such_module_here:X does not import: No module named 'no_such_module_here'",
    ),
    "a module that imports what is missing": (
        "import os\nimport no_such_dependency\n",
        "{module}:X",
        "does not import: No module named 'no_such_dependency' ({folder}/{module}.py, "
        "line 2)",
    ),
    "a module that raises": (
        "def f():\n    return 1 / 0\nf()\n",
        "{module}:X",
        "does not import: ZeroDivisionError: division by zero ({folder}/{module}.py, "
        "line 2)",
    ),
    "a module with a syntax error": (
        "class X(:\n",
        "{module}:X",
        "does not import: SyntaxError: invalid syntax ({module}.py, line 1)",
    ),
    "a class that is not there": (
        "",
        "{module}:X",
        "has no attribute 'X'",
    ),
    "a module in place of a class": (
        "",
        "{module}",
        "{module} has no class method build",
    ),
    "a class without build": (
        "class X:\n    pass\n",
        "{module}:X",
        "{module}:X has no class method build",
    ),
    "a build that is no class method": (
        "class X:\n    def build(self, context): pass\n",
        "{module}:X",
        "{module}:X has no class method build",
    ),
    "an abstract class": (
        "from slm_lab.agent.memory.memory import Memory\nclass X(Memory):\n    pass\n",
        "{module}:X",
        "{module}:X lacks add, break_off",
    ),
    "Params that are no class": (
        GOOD + "class X(Good):\n    Params = {'gamma': 0.9}\n",
        "{module}:X",
        "its Params is not a class but {{'gamma': 0.9}}",
    ),
    "Params that are no model": (
        GOOD + "class X(Good):\n    class Params:\n        pass\n",
        "{module}:X",
        "the model of its keys, {module}.X.Params, is no AlgorithmSpec "
        "(of slm_lab.spec.schema.algorithm)",
    ),
    "Params of another kind of part": (
        GOOD + "from slm_lab.spec.schema.net import NetSpec\n"
        "class X(Good):\n    Params = NetSpec\n",
        "{module}:X",
        "the model of its keys, slm_lab.spec.schema.net.NetSpec, is no AlgorithmSpec",
    ),
}


@pytest.fixture
def registry():
    known = Registry("algorithm", GROUP, built_by="build")
    known.register("Ours", PlugInSpec, "slm_lab.somewhere:Ours")
    return known


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a package with one entry point on the path, as pip would leave it."""
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(package, name, target, source="", group=GROUP):
        info = tmp_path / f"{package}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n"
        )
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")
        (tmp_path / f"{package}.py").write_text(source)

    yield put
    for module in set(sys.modules) - modules:
        del sys.modules[module]


def error_for(registry, name):
    """The error for a spec that names it."""
    block = Registered(registry, "name", AlgorithmSpec, PlugInSpec)
    with pytest.raises(ValueError, match=name) as refused:
        block.validate({"name": name, "gamma": 0.9})
    (line,) = refused.value.errors()
    assert line["loc"] == ("name",)
    return line["msg"]


def test_an_installed_part_is_found_by_its_name_and_imported_when_asked_for(
    registry, install
):
    install("pack_good", "Good", "pack_good:Good", GOOD)
    assert registry.names() == ["Ours", "Good"]
    assert registry.nearest("good") == "Good"
    assert "pack_good" not in sys.modules
    entry = registry.get("Good")
    assert (entry.target, entry.fault) == ("pack_good:Good", None)
    assert registry.load("Good").Params is entry.params
    block = Registered(registry, "name", AlgorithmSpec, PlugInSpec)
    assert isinstance(block.validate({"name": "Good", "gamma": 0.9}), entry.params)
    assert registry.get("Bad") is None


def test_a_part_that_registers_itself_too_is_one_part(registry, install):
    install("pack_both", "Good", "pack_both:Good", GOOD)
    registry.register("Good", None, "pack_both:Good")
    assert registry.names() == ["Ours", "Good"]
    assert registry.get("Good").fault is None


@pytest.mark.parametrize("what", FAULTY)
def test_a_mistake_in_a_package_is_reported_where_its_part_is_named(
    what, registry, install, tmp_path
):
    source, target, message = FAULTY[what]
    module = f"pack_{list(FAULTY).index(what)}"
    install(module, "Theirs", target.format(module=module), source)
    answer = error_for(registry, "Theirs")
    assert answer.startswith("cannot be used: ")
    assert message.format(module=module, folder=tmp_path) in answer
    assert "\n" not in answer


def test_a_faulty_part_cannot_be_loaded_and_its_package_is_reported(registry, install):
    install("pack_faulty", "Theirs", "pack_faulty:X")
    with pytest.raises(
        LabError, match=r'algorithm "Theirs" .* the package pack_faulty 1.2 \(pack'
    ):
        registry.load("Theirs")


def test_a_faulty_package_does_not_affect_others(registry, install):
    install("pack_broken", "Theirs", "pack_broken:X", "1 / 0")
    block = Registered(registry, "name", AlgorithmSpec, PlugInSpec)
    assert block.validate({"name": "Ours"}).name == "Ours"


def test_a_name_that_two_packages_offer_is_refused_naming_both(registry, install):
    install("pack_one", "Good", "pack_one:Good", GOOD)
    install("pack_two", "Good", "pack_two:Good", GOOD)
    answer = error_for(registry, "Good")
    assert "the package pack_one 1.2 (pack_one:Good)" in answer
    assert "the package pack_two 1.2 (pack_two:Good)" in answer
    assert "uninstall one of them" in answer
    assert not {"pack_one", "pack_two"} & set(sys.modules)


def test_a_package_cannot_take_the_name_of_a_part_of_ours(registry, install):
    install("pack_thief", "Ours", "pack_thief:Good", GOOD)
    answer = error_for(registry, "Ours")
    assert answer == (
        "is the name of a part of slm_lab and is offered by the package pack_thief 1.2 "
        "(pack_thief:Good); one of the two needs another name"
    )
    assert registry.names() == ["Ours"]


def test_a_name_is_registered_once_or_always_the_same(registry):
    registry.register("Ours", PlugInSpec, "slm_lab.somewhere:Ours")
    with pytest.raises(
        LabError, match=r'"Ours" is registered already, as slm_lab.somewhere:Ours'
    ):
        registry.register("Ours", PlugInSpec, "elsewhere:Theirs")


def test_a_registered_part_that_does_not_import_is_one_error(registry):
    with pytest.raises(LabError, match=r'"Ours" cannot be used: .* No module named'):
        registry.load("Ours")
    with pytest.raises(LabError, match='no algorithm named "Never"'):
        registry.load("Never")


def test_a_net_or_an_environment_only_has_to_be_callable(install):
    nets = Registry("net", "slm_lab.nets")
    install("pack_net", "Net", "pack_net:Net", "class Net: pass", group="slm_lab.nets")
    install("pack_number", "Number", "pack_number:X", "X = 3", group="slm_lab.nets")
    assert nets.get("Net").fault is None
    assert "pack_number:X is not a class" in nets.get("Number").fault


def test_the_package_of_a_part_is_known_if_it_was_installed(registry, install):
    install("pack_named", "Named", "pack_named:Good", GOOD)
    registry.offer("Offered", "somewhere:Offered")
    assert registry.package("Named") == "pack_named 1.2"
    assert [registry.package(name) for name in ("Offered", "Ours", "Never")] == [
        None
    ] * 3


MODE = """
from pydantic import BaseModel
from slm_lab.spec.modes import Mode

class Keys(BaseModel):
    steps: int

X = Mode("theirs", launch=None, Params={params})
"""


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ("Keys", "has a key without a default: meta.theirs.steps"),
        ("int", "has the Params <class 'int'>, which is no pydantic model"),
        ("{'steps': 3}", "has the Params {'steps': 3}, which is no pydantic model"),
    ],
)
def test_a_faulty_mode_is_reported_only_to_the_specs_that_name_it(
    install, monkeypatch, params, fault
):
    monkeypatch.setattr(MODES, "_offers", None)
    monkeypatch.setattr(MODES, "_plug_ins", {})
    install(
        "pack_mode",
        "theirs",
        "pack_mode:X",
        MODE.format(params=params),
        "slm_lab.modes",
    )
    assert_problem(ppo(), None)
    assert_problem(ppo(meta__distributed="all_reduce"), None)
    offered = "it is offered by the package pack_mode 1.2"
    with pytest.raises(
        LabError, match=re.escape(f"cannot be used: pack_mode:X {fault}; {offered}")
    ):
        parse("small", ppo(meta__distributed="theirs"))


def test_a_mode_that_is_installed_and_not_used_leaves_no_trace_in_a_spec(
    install, monkeypatch
):
    """Else a run could not be read where the package is missing."""
    monkeypatch.setattr(MODES, "_offers", None)
    monkeypatch.setattr(MODES, "_plug_ins", {})
    source = MODE.format(params="Keys").replace("steps: int", "steps: int = 8")
    install("pack_mode", "theirs", "pack_mode:X", source, "slm_lab.modes")

    def meta(**keys):
        return parse("small", ppo(**keys)).spec.to_json()["meta"]

    assert "theirs" not in meta()
    assert meta(meta__theirs={"steps": 3})["theirs"] == {"steps": 3}
    assert meta(meta__distributed="theirs")["theirs"] == {"steps": 8}
