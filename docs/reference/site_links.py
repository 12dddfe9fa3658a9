"""A hook of mkdocs: links from a page to the source are code in the site, which has no
source."""

import re
from typing import Any

SOURCE = re.compile(
    r"\[([^\]]+)\]"  # the text of a link to
    r"\((?:\.\./)+(?:slm_lab|tests|bench)[^)]*\)"
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with every link that leaves the site replaced by its text."""
    return SOURCE.sub(r"\1", markdown)
