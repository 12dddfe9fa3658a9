"""What a release needs: one version in all places, and links that work elsewhere."""

import re
import subprocess
import sys
import tomllib

import yaml

import slm_lab
from tests.unit.docs_pages.pages import ROOT

ABSOLUTE_LINKS = [sys.executable, str(ROOT / ".ci" / "absolute_links")]


def test_all_places_name_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert project["version"] == slm_lab.__version__ == citation["version"]


def test_the_newest_section_of_the_changelog_is_this_release_or_a_later_one():
    heading = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = f"{citation['version']} – {citation['date-released']}"
    assert heading in (released, "Unreleased")


def test_links_of_the_readme_lead_to_files_of_the_repository(tmp_path):
    readme = (ROOT / "README.md").read_text()
    page = tmp_path / "README.md"
    page.write_text(readme)
    subprocess.run([*ABSOLUTE_LINKS, page, "me/lab", "v1.0"], check=True)
    changed = page.read_text()
    prefix = "https://github.com/me/lab"
    assert f"]({prefix}/blob/v1.0/docs/installation.md#extras)" in changed
    assert f"]({prefix}/raw/v1.0/docs/images/ppo_cartpole.png)" in changed
    targets = re.findall(r"\]\((.*?)\)", changed)
    assert all(target.startswith("https://") for target in targets)
    for target in targets:
        file = re.search(rf"{prefix}/(?:blob|raw)/v1\.0/([^#]*)", target)
        assert file is None or (ROOT / file[1]).exists()


def test_a_page_without_relative_links_is_an_error(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("A [link](https://example.org) and [another](#here).\n")
    words = [*ABSOLUTE_LINKS, page, "me/lab", "v1.0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, f"{page} has no relative link\n")
