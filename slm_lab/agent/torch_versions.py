"""What differs between the releases of torch that the lab runs on: from 2.4."""

import io
import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from slm_lab.core.errors import LabError

ADAFACTOR: tuple[type[torch.optim.Optimizer], ...] = ()
"""Adafactor, which torch has from 2.5 on."""
if hasattr(torch.optim, "Adafactor"):
    ADAFACTOR = (torch.optim.Adafactor,)

is_exporting: Callable[[], bool] = getattr(
    torch.compiler, "is_exporting", torch.compiler.is_compiling
)
"""Whether torch.export traces this call. Before 2.7 torch only tells that something
traces it."""


def attribute_of(module: Any, name: str) -> Any:
    """The class or function `name` of a module of torch. Raises LabError if the
    installed torch is older than it. A spec is checked without torch, against the names
    of the newest torch."""
    part = getattr(module, name, None)
    if part is None:
        raise LabError(f"torch {torch.__version__} has no {name}: use a newer torch")
    return part


def cpu_capabilities() -> dict[str, bool]:
    """The instructions of this processor, by torch's names. An older torch does not
    list them: Linux does, and on other systems none is known."""
    if hasattr(torch.cpu, "get_capabilities"):
        return {name: bool(has) for name, has in torch.cpu.get_capabilities().items()}
    words: set[str] = set()
    with suppress(OSError):
        words.update(re.findall(r"\w+", Path("/proc/cpuinfo").read_text()))
    names = {"avx512_f": "avx512f"}
    known = ("avx2", "avx512_f", "avx512_bf16", "amx_bf16", "bf16")
    return {name: names.get(name, name) in words for name in known}


@lru_cache(maxsize=1)
def saves_unsigned() -> bool:
    """Whether torch saves tensors of unsigned integers of more than 8 bits. Torch 2.4
    makes them, and cannot save them."""
    try:
        torch.save(torch.zeros(1, dtype=torch.uint64), io.BytesIO())
    except KeyError:
        return False
    return True
