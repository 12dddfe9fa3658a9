"""Gradient steps that a GPU replays as CUDA graphs.

The host takes some microseconds for every kernel that it starts, and a gradient step of
small networks has hundreds. A graph starts all of them at once."""

import gc
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from slm_lab.agent.algorithm.report import GradientStep, Update
from slm_lab.agent.device import new_stream, separate_stream
from slm_lab.agent.optim.optimizer import TrainState
from slm_lab.core.errors import LabError

WARM_UP = 3
"""Steps on inputs of the same shapes before one is recorded. Libraries choose kernels
in them."""


Input: TypeAlias = Any
"""An input of a `GradientStep`."""


class RecordedStep:
    """A gradient step with one CUDA graph per shape of its inputs. A graph holds
    addresses, and the values of everything else. So it gets numbers as scalars that
    keep their place."""

    def __init__(self, step: GradientStep, train_state: TrainState) -> None:
        self._step = step
        self._train_state = train_state
        self._scalars: dict[int, Tensor] = {}
        self._numbers: dict[int, float] = {}
        """The values of the scalars, by the place of the input."""
        self._calls: Counter[Hashable] = Counter()
        self._recordings: dict[Hashable, Recording] = {}
        self._recorder: Recorder | None = None

    def __call__(self, *inputs: Input) -> Update:
        """The step on these inputs. Raises LabError if it cannot be recorded."""
        device = self._train_state.recording_device()
        if device is None:
            return self._step(*inputs)
        placed = [
            self._with_place(place, value, device) for place, value in enumerate(inputs)
        ]
        key = tuple(_key(value) for value in placed)
        self._calls[key] += 1
        recorder = self._recorder = self._recorder or Recorder(device)
        if self._calls[key] <= WARM_UP:
            with separate_stream(recorder.stream):
                return self._step(*placed)
        if key not in self._recordings:
            self._recordings[key] = Recording(self._step, placed, recorder)
        return self._recordings[key].replay(placed)

    def _with_place(self, place: int, value: Input, device: torch.device) -> Input:
        """A number as a scalar, always the same one; zero, which may leave out a part,
        as it is."""
        if not isinstance(value, float) or value == 0.0:
            return value
        if place not in self._scalars:
            self._scalars[place] = torch.empty((), device=device)
        if self._numbers.get(place) != value:
            self._numbers[place] = value
            self._scalars[place].fill_(value)
        return self._scalars[place]


class Recording:
    """The kernels of one step, with its inputs and results, which keep their places."""

    def __init__(
        self, step: GradientStep, inputs: Sequence[Input], recorder: "Recorder"
    ) -> None:
        self._inputs = [_copied(record) for record in inputs]
        self._replay = recorder.record(lambda: self._run(step))

    def _run(self, step: GradientStep) -> None:
        self._update = step(*self._inputs)
        report = self._update.report
        self._names = [
            name for name, value in report.items() if isinstance(value, Tensor)
        ]
        self._values = torch.stack(
            [torch.as_tensor(report[name]) for name in self._names]
        )

    def replay(self, inputs: Sequence[Input]) -> Update:
        """The step on inputs of the same shapes."""
        for recorded, new in zip(self._inputs, inputs, strict=True):
            for to, tensor in zip(_fields(recorded), _fields(new), strict=True):
                if to is not None and tensor is not None:
                    to.copy_(tensor, non_blocking=True)
        self._replay()
        values = dict(zip(self._names, self._values.clone().unbind(), strict=True))
        return self._update._replace(report={**self._update.report, **values})


class Recorder:
    """Records the graphs of one step. They share their memory, because one runs after
    another."""

    def __init__(self, device: torch.device) -> None:
        self.stream = new_stream(device)
        """The stream of recordings and of the warm-up. Both are on one, because
        autograd and libraries keep what belongs to a stream."""
        self._pool: Any = None

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Records what `work` starts on the GPU, without running it; returns what runs
        it. Raises LabError for work that cannot be recorded, because the host waits in
        it, for example."""
        graph = torch.cuda.CUDAGraph()
        cause = None
        outside = torch.cuda.current_stream()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        recording = torch.cuda.graph(graph, self._pool, self.stream, "thread_local")
        gc.collect()  # whatever is freed on the GPU during a recording breaks it
        gc.disable()
        try:
            with recording:
                try:
                    work()
                # the error at the end of the recording hides this one
                except RuntimeError as error:
                    cause = error
                    raise
        except RuntimeError as error:
            torch.cuda.set_stream(outside)
            message = (
                f"the gradient step cannot be recorded: {cause or error}; set it to "
                "false"
            )
            raise LabError(f"agent.net.cuda_graph = true: {message}") from error
        finally:
            gc.enable()
        return graph.replay


def _fields(inputs: Input) -> tuple[Tensor | None, ...]:
    """The tensors of a record; of a scalar or zero none."""
    if isinstance(inputs, Tensor | float):
        return ()
    if isinstance(inputs, tuple):
        return inputs
    return tuple(vars(inputs).values())


def _key(inputs: Input) -> Hashable:
    """The key that inputs of one graph have in common."""
    if isinstance(inputs, Tensor | float):
        return type(inputs).__name__
    return tuple(None if t is None else (t.shape, t.dtype) for t in _fields(inputs))


def _copied(inputs: Input) -> Input:
    """A copy of a record, which keeps its place."""
    if isinstance(inputs, Tensor | float):
        return inputs
    copies = (None if t is None else t.clone() for t in _fields(inputs))
    if type(inputs) is tuple:
        return tuple(copies)
    return type(inputs)(*copies)
