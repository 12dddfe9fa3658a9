"""Weights & Biases. Its own variables say where to: `WANDB_MODE=offline` keeps
everything on this machine, `WANDB_PROJECT`, `WANDB_ENTITY` and `WANDB_DIR` choose a
place."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, final

from typing_extensions import override

from slm_lab.storage.result import Ending
from slm_lab.trackers.tracker import About, Point, Tracker, new_id

PROJECT = "slm-lab"
LONGEST_TAG = 64
EXIT_CODES = {Ending.FINISHED: 0, Ending.INTERRUPTED: 255, Ending.FAILED: 1}
"""What W&B shows as finished, killed and failed."""


@final
class WandB(Tracker):
    """One W&B run per Session, in the group of its run folder."""

    name: ClassVar = "wandb"
    module: ClassVar = "wandb"

    @override
    def open(self, about: About, known: str | None, parent: Any) -> tuple[Any, str]:
        import wandb

        identity = known or new_id()
        tracked = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=about.name,
            group=about.group,
            job_type=about.key,
            id=identity,
            resume="allow",
            # beside others of this process, which may be the user's own
            reinit="create_new",
            config=dict(about.config),
            tags=[tag[:LONGEST_TAG] for tag in about.tags] or None,
            notes=about.note or None,
            settings=wandb.Settings(silent=True, console="off", init_timeout=30),
        )
        # W&B counts its own steps, which may only rise. So frames are a column.
        tracked.define_metric("*", step_metric="frame")
        return tracked, identity

    @override
    def log(self, tracked: Any, points: Sequence[Point]) -> None:
        for point in points:
            tracked.log({**point.values, "frame": point.frame})

    @override
    def summarise(self, tracked: Any, values: Mapping[str, float], frame: int) -> None:
        tracked.summary.update(dict(values))

    @override
    def add_image(self, tracked: Any, name: str, file: Path) -> None:
        import wandb

        tracked.log({f"graphs/{name}": wandb.Image(str(file))})

    @override
    def add_agent(self, tracked: Any, file: Path) -> None:
        import wandb

        artifact = wandb.Artifact(f"agent-{tracked.id}", type="model")
        artifact.add_file(str(file))
        tracked.log_artifact(artifact)

    @override
    def recover(self, error: BaseException) -> None:
        """Ends W&B's own process if that has crashed; the next run starts another."""
        if self.is_alone and isinstance(error, ConnectionError):
            import wandb

            with suppress(Exception):  # it tells the lost process, too
                wandb.teardown()

    @override
    def close(self, tracked: Any, ending: Ending) -> None:
        tracked.finish(exit_code=EXIT_CODES[ending])
