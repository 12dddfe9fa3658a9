"""Sends the rows of a training to Weights & Biases: `slm_lab.train(…,
callbacks=["wandb"])`.

`WANDB_MODE=offline` keeps everything on this machine.
"""

from typing import Any

import wandb


class WandB:
    """One W&B run per training: the spec, the columns of each Session against its
    frames."""

    def __init__(self) -> None:
        self._tracked: Any = None

    def on_row(self, run: Any, row: dict[str, Any]) -> None:
        """Logs the columns; the first row begins the W&B run."""
        if self._tracked is None:
            self._tracked = wandb.init(
                project="slm-lab", name=run.folder.name, config=run.spec
            )
        session = row["session"]
        self._tracked.define_metric(f"s{session}/*", step_metric=f"s{session}/frame")
        self._tracked.log(
            {f"s{session}/{column}": v for column, v in row.items() if v is not None}
        )

    def on_end(self, run: Any) -> None:
        """Logs the result."""
        if self._tracked is not None:
            self._tracked.summary["final_return"] = run.metrics.get("final_return")
            self._tracked.finish()
