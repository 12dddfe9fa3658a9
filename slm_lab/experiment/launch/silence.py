"""Who shows no sign of life."""

import time
from collections.abc import Hashable, Sequence
from typing import final


@final
class Silence:
    """How long each of W processes has shown no sign of life while it should have.

    What a sign is, and when one is due, is for its user to say.
    """

    def __init__(self, count: int) -> None:
        self._signs: list[Hashable | None] = [None] * count
        self._since = [time.monotonic()] * count

    def seconds(self, signs: Sequence[Hashable | None]) -> list[float]:
        """To be called a few times a second. `signs` (W,): what changes as long as a process gets
        on, or None where nothing is due of it."""
        now = time.monotonic()
        for index, sign in enumerate(signs):
            if sign is None or sign != self._signs[index]:
                self._since[index] = now
            if sign is not None:
                self._signs[index] = sign
        return [now - since for since in self._since]
