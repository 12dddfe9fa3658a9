"""Environments of installed packages, found by a bare id, and hints for ids of
packages."""

import importlib.util
import subprocess
import sys
from importlib.util import find_spec

import gymnasium
import pytest

from slm_lab.core.errors import SpecError
from slm_lab.env import lookup as registrars
from slm_lab.env.check import check_env
from slm_lab.env.lookup import GAMES

MODULE = """
import gymnasium
import numpy as np

class Maze(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

class Unregistered(Maze):
    pass

def register_all():
    gymnasium.register("{prefix}Small-v0", entry_point="{module}:Maze")
    gymnasium.register("{prefix}Large-v1", entry_point="{module}:Maze")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package of environments for the length of a test."""
    monkeypatch.syspath_prepend(tmp_path)
    modules = []

    def install(module, prefix, entry_point=None, code=MODULE, last=""):
        source = code.replace("{module}", module).replace("{prefix}", prefix)
        (tmp_path / f"{module}.py").write_text(source + last)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        name = module.replace("_", "-")
        requires = "Requires-Dist: gymnasium>=1.0\n"
        if entry_point:
            requires = ""
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\n{requires}"
        )
        if entry_point is not None:
            (info / "entry_points.txt").write_text(f"[gymnasium.envs]\n{entry_point}\n")
        modules.append(module)

    yield install
    for module in modules:
        sys.modules.pop(module, None)
    targets = {i: str(entry.entry_point) for i, entry in gymnasium.registry.items()}
    for env_id, target in targets.items():
        if target.partition(":")[0] in modules:
            del gymnasium.registry[env_id]


def test_an_id_is_found_by_the_entry_point_of_its_package(env_spec, package):
    package("mazes", "Labyrinth-", "__root__ = mazes:register_all")
    assert "mazes" not in sys.modules
    assert check_env(env_spec("CartPole-v1")) == []
    assert "mazes" not in sys.modules
    assert check_env(env_spec("Labyrinth-Small-v0")) == []


def test_an_entry_point_names_the_namespace_of_its_ids(assert_refused, package):
    package("mazes", "Labyrinth-", "dark = mazes:register_all")
    assert_refused("dark/Labyrinth-Small-v0")


def test_a_package_without_an_entry_point_is_found_by_its_name(assert_refused, package):
    package("maze_gym", "Maze-", last="register_all()\n")
    assert_refused("Maze-Small-v0")


def test_a_package_that_does_not_import_is_named_if_it_might_know_the_id(
    assert_refused, package
):
    package(
        "mazes", "", "__root__ = mazes:register_all", code="raise OSError('no library')"
    )
    did_you_mean = "did you mean CartPole-v1?; mazes:register_all does not import"
    assert_refused("CartPoel-v1", f"…{did_you_mean}…no library")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("maze_gym:Maze-Smal-v0", "did you mean maze_gym:Maze-Small-v0?"),
        ("maze_gym:Maze-Large-v0", "did you mean maze_gym:Maze-Large-v1?"),
        ("maze_gym:Maze", "Maze is a class, not an id; write maze_gym:Maze-Small-v0"),
        (
            "maze_gym:Unregistered",
            'gymnasium.register("Unregistered-v0", '
            'entry_point="maze_gym:Unregistered")',
        ),
        ("maze_gym.parts:Maze-Small-v0", "maze_gym has no module maze_gym.parts"),
        (
            "maze_gym:WallGridEnv",
            "no such environment; maze_gym has Maze-Small-v0, Maze-Large-v1",
        ),
        (
            "maze_gym:CartPoel-v1",
            "; did you mean CartPole-v1?; maze_gym has Maze-Small-v0, Maze",
        ),
    ],
)
def test_a_hint_for_an_id_of_a_module_names_the_module(
    assert_refused, package, name, hint
):
    package("maze_gym", "Maze-", last="__path__ = []\nregister_all()\n")
    assert_refused(name, f"…{hint}")


def test_a_package_that_is_not_installed_is_named_in_one_line(assert_refused):
    missing = "the package highway_env_of_nobody is not installed; install it with pip"
    assert_refused("highway_env_of_nobody:highway-fast-v0", f"…: {missing}")


def test_a_module_of_the_working_folder_needs_an_option(
    assert_refused, tmp_path, monkeypatch
):
    (tmp_path / "maze_of_mine.py").touch()
    monkeypatch.chdir(tmp_path)
    assert_refused(
        "maze_of_mine:Maze-v0", "…repeat the command with --import maze_of_mine"
    )


def test_a_module_that_lacks_another_one_is_not_taken_for_missing(
    assert_refused, package
):
    package("mazes", "", code="import nothing_of_that_name")
    missing = "does not import: No module named 'nothing_of_that_name'"
    assert_refused("mazes:Maze-v0", f"…{missing}")


@pytest.mark.parametrize("name", ["Pong-v4", "PongNoFrameskip-v4"])
def test_an_old_id_of_ale_py_is_found_whoever_has_imported_it(name):
    pytest.importorskip("ale_py")
    code = f"""
import sys
from slm_lab.env.lookup import find_registered
assert "ale_py" not in sys.modules
print(find_registered("{name}").id)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == name, done.stderr


@pytest.mark.parametrize(
    "name",
    [
        "PandaReach-v3",
        "Room-v0",
        "WallGridEnv",
        "MyWorld-OneRoom-v0",
        "HopperHop-v0",
        "Reach-v1",
    ],
)
def test_an_id_like_no_other_gets_no_wrong_hint(assert_refused, name):
    hint = (
        "write package.module:Id-v0 for an environment of a package; for your own "
        "module add"
    )
    of_pool = ""
    if find_spec("envpool") is None:
        of_pool = (
            'envpool has many more: pip install "slm-lab[envpool]", then envpool:ID; '
        )
    assert_refused(name, f"…: there is no such environment; {of_pool}{hint}")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Hoper-v5", "Hopper-v5"),
        ("humanoid", "Humanoid-v5"),
        ("Humnaoid-v5", "Humanoid-v5"),
        ("HalfChetah-v5", "HalfCheetah-v5"),
        ("BipedalWalker-v3 ", "BipedalWalker-v3"),
        ("Blackjack-v0", "Blackjack-v1"),
    ],
)
def test_a_slip_gets_the_id_and_how_ids_of_packages_are_written(
    assert_refused, name, hint
):
    assert_refused(name, f"…; did you mean {hint}?")


@pytest.fixture
def no_ale_py(monkeypatch):
    """Without ale-py, neither installed nor imported."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "ale_py" else found(name),
    )
    others = {
        i: e
        for i, e in gymnasium.registry.items()
        if "ale_py" not in str(e.entry_point)
    }
    monkeypatch.setattr(gymnasium, "registry", others)
    monkeypatch.setattr(registrars, "entry_points", lambda group: [])


@pytest.mark.parametrize("name", ["Pong-v5", "Pong-v4", "pong", "Pongg-v5"])
def test_a_game_is_known_by_name_without_ale_py(assert_refused, no_ale_py, name):
    comes_with = (
        'did you mean ALE/Pong-v5? It comes with pip install "slm-lab[atari]"; write'
    )
    assert_refused(name, f"…{comes_with}")


def test_the_games_that_are_known_by_name_are_those_of_ale_py():
    pytest.importorskip("ale_py")
    assert set(GAMES) <= set(gymnasium.registry)


@pytest.mark.parametrize("name", ["Pong-v5", "Pong", "pong-v5", "Pongg-v5"])
def test_a_game_without_its_namespace_gets_the_newest_id(assert_refused, build, name):
    pytest.importorskip("ale_py")
    assert_refused(name, "…did you mean ALE/Pong-v5?")
    with pytest.raises(SpecError):
        build(name)
