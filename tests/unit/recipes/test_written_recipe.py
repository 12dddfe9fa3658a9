"""A draft is the recipe again, with comments."""

import pytest

from slm_lab.recipes.new_file import COLUMNS, draft
from slm_lab.recipes.recipe import recipe_files, recipe_names
from slm_lab.spec.load import load_spec
from slm_lab.spec.read import find_file, read_file
from slm_lab.spec.yaml_text import parse_yaml

ALL = [(file, name) for file in recipe_files() for name in recipe_names(file)]


@pytest.mark.parametrize(("file", "name"), ALL)
def test_a_draft_is_the_same_spec(file, name, tmp_path):
    raw = read_file(find_file(f"recipe/{file}.yaml"))[name]
    spec = load_spec(f"recipe/{file}.yaml", name, sets=["env=CartPole-v1"])
    text = draft(spec, raw, ["one line", "another"])
    assert parse_yaml(text, "draft") == {name: raw}
    written = tmp_path / "draft.yaml"
    written.write_text(text, encoding="utf-8")
    assert load_spec(written, name, sets=["env=CartPole-v1"]) == spec


def test_keys_have_the_words_of_the_reference_within_the_columns():
    raw = read_file(find_file("recipe/ppo.yaml"))["ppo"]
    spec = load_spec("recipe/ppo.yaml", "ppo", sets=["env=CartPole-v1"])
    lines = draft(spec, raw, ["title"]).splitlines()
    assert lines[0] == "# title"
    assert "      lam: 0.95  # λ of GAE (arXiv:1506.02438)" in lines
    assert all(len(line) <= COLUMNS for line in lines if "#" in line)
