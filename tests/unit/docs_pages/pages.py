"""The pages of the documentation, and the `slm-lab` commands in them."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ |\w+=\S+ |nohup )*slm-lab (.*)$", re.MULTILINE)
ENDS = ("|", "&", "&&", ">", ";", "2>&1")


def commands(page):
    """The arguments of each command in the blocks of a page."""
    blocks = BLOCK.findall(page.read_text())
    for block in (block for language, block in blocks if language in ("", "bash")):
        for line in COMMAND.findall(block.replace("\\\n", " ")):
            words = shlex.split(line, comments=True)
            yield words[
                : min((words.index(end) for end in ENDS if end in words), default=None)
            ]
