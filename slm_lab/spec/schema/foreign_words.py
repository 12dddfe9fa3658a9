"""Words of SB3, CleanRL, RLlib and Gymnasium, and the lab's own: `docs/coming_from.md`
as data.

An error about an unknown key ends with the text: "unknown key; use env.num_envs"."""

import json
from collections.abc import Mapping
from pathlib import Path

_BY_SUBJECT = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)

FOREIGN: Mapping[str, str] = {
    word: text
    for texts in _BY_SUBJECT.values()
    for words, text in texts.items()
    for word in words.split()
}
