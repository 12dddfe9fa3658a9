"""TensorBoard: `tensorboard --logdir data` shows hyperparameters beside results.

The lab itself writes the rows, see `metrics.tensorboard`; this adds the rest."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

from typing_extensions import override

from slm_lab.core.values import leaves
from slm_lab.storage.result import Ending
from slm_lab.trackers.tracker import About, Point, Tracker

FOLDER = "results"
"""The folder beside the events of the rows."""


class _Tracked(NamedTuple):
    writer: Any
    hyperparameters: dict[str, Any]


@final
class TensorBoard(Tracker):
    """The hyperparameters, the results and the graphs of each Session."""

    name: ClassVar = "tensorboard"
    module: ClassVar = "tensorboard"

    @override
    def open(self, about: About, known: str | None, parent: Any) -> tuple[Any, str]:
        from torch.utils.tensorboard import SummaryWriter

        place = f"{about.log_prefix}/{FOLDER}"
        writer = SummaryWriter(str(about.folder / "log" / "tensorboard" / place))
        text = json.dumps(about.config, indent=2)
        writer.add_text("spec", "\n".join(f"    {x}" for x in text.splitlines()))
        plain = {
            path: value
            if isinstance(value, bool | int | float | str)
            else json.dumps(value)
            for path, value in leaves(about.config).items()
            if value is not None and not path.startswith("run.")
        }
        return _Tracked(writer, plain), place

    @override
    def log(self, tracked: Any, points: Sequence[Point]) -> None:
        pass  # `TensorBoardExporter` writes them

    @override
    def summarise(self, tracked: Any, values: Mapping[str, float], frame: int) -> None:
        from torch.utils.tensorboard.summary import hparams

        results = dict(values)
        for part in hparams(tracked.hyperparameters, results):  # type: ignore[no-untyped-call]
            tracked.writer.file_writer.add_summary(part)
        for name, value in results.items():
            tracked.writer.add_scalar(name, value, frame)

    @override
    def add_image(self, tracked: Any, name: str, file: Path) -> None:
        import numpy as np
        from PIL import Image

        with Image.open(file) as image:
            pixels = np.asarray(image.convert("RGB"))
        tracked.writer.add_image(name, pixels, dataformats="HWC")

    @override
    def add_agent(self, tracked: Any, file: Path) -> None:
        pass  # TensorBoard has no place for files, and the run folder has the agent

    @override
    def close(self, tracked: Any, ending: Ending) -> None:
        tracked.writer.close()
