"""`--import`: the module is imported, or one line says why not."""

import sys
from importlib.util import find_spec, spec_from_file_location

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.core.plugins import (
    import_plugins,
    look_in_working_directory,
    typed_modules,
)

WRONG = {
    "no_dependency": (
        "import no_such_dependency",
        "No module named 'no_such_dependency' (",
    ),
    "raises": ("x = 1\nx.y\n", "AttributeError: 'int' object has no attribute 'y' ("),
    "leaves": ("import sys\nsys.exit(5)\n", "SystemExit: 5 ("),
    "two_lines": ('raise ValueError("one\\ntwo")', "ValueError: one two ("),
    "no_python": (
        "x = = 1",
        "SyntaxError: invalid syntax (plug_in_no_python.py, line 1)",
    ),
    "takes_a_name": (
        "from slm_lab.spec import builtin\n"
        "from slm_lab.core.registry import NETS\n"
        'NETS.register("MLPNet", None, "plug_in:Mine")\n',
        'net "MLPNet" is registered already, as slm_lab.agent.net.mlp:MLPNet; '
        "give plug_in:Mine another name",
    ),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.mark.parametrize("name", WRONG)
def test_a_module_that_does_not_import_is_one_line(name, here):
    source, message = WRONG[name]
    (here / f"plug_in_{name}.py").write_text(source)
    with pytest.raises(UsageError) as error:
        import_plugins([f"plug_in_{name}"])
    assert str(error.value).startswith(f"--import plug_in_{name}: {message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a" * 5000, f"json.{'a' * 5000}", f"{'a' * 5000}.py"])
def test_a_module_of_a_very_long_name_is_a_short_line(name, here):
    with pytest.raises(UsageError, match=r"^--import ") as error:
        import_plugins([name])
    assert len(str(error.value)) < 300


def test_a_file_in_place_of_a_module_is_answered_with_the_module(here):
    (here / "my_env.py").write_text("x = 1")
    with pytest.raises(
        UsageError, match=r"--import my_env.py: write my_env, without .py"
    ):
        import_plugins(["my_env.py"])


@pytest.mark.parametrize("name", ["", "..", "../my_env", "./my_env.py"])
def test_a_word_that_names_no_module_is_answered_with_what_does(name, here):
    with pytest.raises(UsageError, match=r"must be the name of a module, such as"):
        import_plugins([name])


def test_a_project_folder_beside_which_a_command_is_typed_is_answered_with_the_fix(
    here,
):
    package = here / "plug_in_copy" / "plug_in_copy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("x = 1")
    nothing = (
        "--import plug_in_copy: nothing was imported, because the folder plug_in_copy "
        "has no __init__.py; its package is plug_in_copy/plug_in_copy: repeat the "
        "command in plug_in_copy"
    )
    with pytest.raises(UsageError) as error:
        import_plugins(["plug_in_copy"])
    assert str(error.value) == nothing
    (here / "plug_in_copy" / "pyproject.toml").touch()
    with pytest.raises(UsageError) as error:
        import_plugins(["plug_in_copy"])
    install = ", or install it: pip install -e ./plug_in_copy"
    assert str(error.value) == nothing + install


def test_a_folder_that_hides_an_installed_package_is_named(here, monkeypatch):
    """As that of an editable installation, whose finder comes last."""
    (here / "plug_in_hidden").mkdir()
    installed = here / "elsewhere.py"
    installed.write_text("x = 1")

    class Finder:
        @staticmethod
        def find_spec(name, path, target=None):
            if name == "plug_in_hidden":
                return spec_from_file_location(name, installed)
            return None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    with pytest.raises(UsageError, match=r"hides the installed .* in another folder$"):
        import_plugins(["plug_in_hidden"])


def test_a_folder_without_a_package_is_no_module_and_a_module_in_it_is_one(here):
    (here / "plug_in_folder").mkdir()
    (here / "plug_in_folder" / "inner.py").write_text("x = 1")
    with pytest.raises(UsageError, match=r"no __init__\.py; name a module in it$"):
        import_plugins(["plug_in_folder"])
    import_plugins(["plug_in_folder.inner"])
    assert sys.modules.pop("plug_in_folder.inner").x == 1
    import_plugins(["sys", "json"])


def test_a_file_of_the_working_directory_takes_the_place_of_no_installed_package(here):
    (here / "yaml.py").write_text("raise SystemExit")
    look_in_working_directory()
    assert find_spec("yaml").origin != str(here / "yaml.py")


def test_a_module_of_the_working_directory_is_found(here):
    (here / "plug_in_that_is_well.py").write_text("x = 1")
    import_plugins(["plug_in_that_is_well"])
    assert sys.modules.pop("plug_in_that_is_well").x == 1


def test_a_typed_environment_of_the_working_folder_names_its_module(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    typed = ("mine:A-v0", "mine.envs:A-v0", "gymnasium:A-v0", "A-v0", "ALE/Pong-v5", "")
    assert [typed_modules(each) for each in typed] == [
        ("mine",),
        ("mine.envs",),
        (),
        (),
        (),
        (),
    ]


@pytest.mark.parametrize("name", ["test", "code", "time", "yaml", "code.inner"])
def test_a_file_called_like_a_module_that_python_finds_first_is_to_be_renamed(
    here, name
):
    package = name.partition(".")[0]
    (here / f"{package}.py").write_text("x = 1")
    imported = set(sys.modules)
    with pytest.raises(
        UsageError, match=rf"^--import {name}: .*, not \./{package}\.py, .*rename"
    ):
        import_plugins([name])
    assert set(sys.modules) == imported


def test_a_module_that_python_finds_beside_the_script_is_no_namesake(here, monkeypatch):
    beside = here / "beside"
    beside.mkdir()
    for folder in (here, beside):
        (folder / "plug_in_of_two.py").write_text(f"place = {str(folder)!r}")
    monkeypatch.syspath_prepend(beside)
    import_plugins(["plug_in_of_two"])
    assert sys.modules.pop("plug_in_of_two").place == str(beside)
