"""How far a file of rows goes at a checkpoint, and what it holds up to there."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import final


@final
@dataclass(frozen=True)
class Extent:
    """The first `size` bytes of a file, and their checksum. What follows was written later."""

    size: int
    sha256: str

    @classmethod
    def of(cls, content: bytes) -> "Extent":
        """That of a whole file."""
        return cls(len(content), hashlib.sha256(content).hexdigest())

    def misfit(self, path: Path) -> str | None:
        """What is wrong with the file at `path`, which had this extent at a checkpoint; None where
        nothing is. Raises OSError where it cannot be read."""
        if not path.exists():
            return f"{path} is missing; it had {self.size} bytes at the checkpoint"
        with open(path, "rb") as file:
            content = file.read(self.size)
        if len(content) < self.size:
            return (
                f"{path} has {len(content)} bytes, fewer than the {self.size} it had at the "
                "checkpoint: rows were lost or edited"
            )
        if Extent.of(content) != self:
            return f"{path} is damaged: rows do not match the checksum of the checkpoint"
        return None
