"""Adds the examples and the benches to the package; all else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

EXAMPLES = ("docs/examples/lab_extras", "docs/examples/play_onnx.py", "bench")


class BuildWithExamples(build_py):
    """Copies them to where `slm-lab example` looks for them. An editable installation
    leaves them where they are."""

    def run(self) -> None:
        """Builds the package, with the examples in it."""
        super().run()
        if self.editable_mode:
            return
        folder = Path(self.build_lib) / "slm_lab" / "examples"
        folder.mkdir(parents=True, exist_ok=True)
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
        for example in map(Path, EXAMPLES):
            target = folder / example.name
            if example.is_dir():
                shutil.copytree(example, target, ignore=ignored, dirs_exist_ok=True)
            else:
                shutil.copyfile(example, target)


setup(cmdclass={"build_py": BuildWithExamples})
