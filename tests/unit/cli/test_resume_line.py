"""The printed resume command has the import options for the modules of the folder."""

import shlex

import pytest

from slm_lab.records.trust import command_text


@pytest.mark.parametrize(
    ("modules", "imports"),
    [
        ([], []),
        (["mine"], ["mine"]),
        (["mine", "mine"], ["mine"]),
        (["mine.inner", "mine"], ["mine"]),
        (["mine", "other.envs"], ["mine", "other.envs"]),
    ],
)
def test_each_module_has_an_import_option_unless_its_package_has(modules, imports):
    words = shlex.split(command_text(["run", "a b.json", "x", "train@data/x"], modules))
    assert words[:5] == ["slm-lab", "run", "a b.json", "x", "train@data/x"]
    assert words[5:] == [word for name in imports for word in ("--import", name)]
