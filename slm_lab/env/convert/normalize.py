"""Running statistics, and the normalisation of observations by them."""

from typing import Any

import numpy as np
from gymnasium import Space, spaces

from slm_lab.core.observation import ObservationLayout
from slm_lab.core.types import Array, FloatArray, IntArray

EPSILON = 1e-8
"""Added to a variance before its square root."""


class RunningStatistics:
    """Count, mean and M2 (sum of squared deviations) of the vectors seen so far. They
    are views into the caller's flat float64 vector [count, mean (D), M2 (D)], which
    processes can share or merge. M2 replaces the variance, because sums merge exactly.
    There is no cache."""

    def __init__(self, vector: FloatArray, size: int) -> None:
        assert vector.shape == (self.length(size),)
        self.size = size
        self._count = vector[:1]
        self._mean = vector[1 : 1 + size]
        self._m2 = vector[1 + size :]

    @staticmethod
    def length(size: int) -> int:
        """The length of the vector for D = `size` components."""
        return 1 + 2 * size

    @property
    def mean(self) -> FloatArray:
        """The means (D,), zeros before the first vector."""
        return self._mean

    @property
    def variance(self) -> FloatArray:
        """(D,) population variance; ones before the first vector."""
        if self._count[0] == 0:
            return np.ones_like(self._m2)
        return np.asarray(self._m2 / self._count)

    def deviation(self) -> FloatArray:
        """The deviations (D,), sqrt(variance + ε), never zero."""
        variance = self.variance
        variance += EPSILON
        return np.asarray(np.sqrt(variance, variance))

    def update(self, batch: Array) -> None:
        """Adds the B ≥ 1 rows of `batch` (B, D).

        With d the rows less the mean so far and n' the new count,

            mean' = mean + Σd / n',   M2' = M2 + Σd² − (Σd)² / n'

        This equals a merge with the batch's own mean and M2, in fewer steps. It loses
        digits if the mean is far from the rows, so the first batch starts from its
        first row."""
        count = self._count
        if count[0] == 0:
            self._mean[:] = batch[0]
        deviation = batch - self._mean
        total = np.add.reduce(deviation, 0)
        np.multiply(deviation, deviation, deviation)
        count += len(batch)
        shift = total / count
        self._mean += shift
        shift *= total
        self._m2 += np.add.reduce(deviation, 0)
        self._m2 -= shift


class ObservationNormalizer:
    """(obs − mean) / sqrt(variance + ε), clipped to ± `clip`, as float32. The
    statistics count each observation that is acted on once, before its normalisation.
    They normalise the last observation of an episode too, but do not count it: it is
    only bootstrapped from."""

    def __init__(
        self,
        statistics: RunningStatistics,
        clip: float | None,
        layout: ObservationLayout,
        columns: IntArray | None = None,
    ) -> None:
        """`columns` (D,) are the numbers of a row that are normalised, see
        `ObservationLayout.columns_of`; None: all of an observation."""
        self.statistics = statistics
        self.clip = clip
        self._layout = layout
        self._columns = columns

    def space(self, space: Space[Any]) -> Space[Any]:
        """The space of normalised observations of `space`."""
        if self._columns is not None:
            return space
        bound = self.clip
        if bound is None:
            bound = np.inf
        return spaces.Box(-bound, bound, space.shape, np.float32)

    def update(self, obs: Array) -> None:
        """Adds the observations (B, ...) to the statistics."""
        if self._columns is None:
            self.statistics.update(obs.reshape(len(obs), -1))
        else:
            self.statistics.update(self._layout.floats(obs)[:, self._columns])

    def normalize(self, obs: Array) -> Array:
        """The observations (B, ...), joined or single, normalised in float64."""
        if self._columns is None:
            return self._normalized(obs)
        rows = np.ascontiguousarray(obs).copy()
        floats = self._layout.floats(rows)
        floats[:, self._columns] = self._normalized(floats[:, self._columns])
        return rows

    def constants(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, deviation and bound of every number of a frame, (D,) each. They are 0,
        1 and infinite for numbers that are not normalised."""
        size = self.statistics.size
        columns = self._columns
        if columns is None:
            columns = np.arange(size)
        else:
            size = self._layout.row_size // self._layout.columns_of_a_float
        mean = np.zeros(size)
        deviation = np.ones(size)
        bound = np.full(size, np.inf)
        mean[columns] = self.statistics.mean
        deviation[columns] = self.statistics.deviation()
        if self.clip is not None:
            bound[columns] = self.clip
        return mean, deviation, bound

    def _normalized(self, obs: Array) -> Array:
        flat = obs.reshape(-1, self.statistics.size) - self.statistics.mean
        flat /= self.statistics.deviation()
        if self.clip is not None:
            np.minimum(flat, self.clip, out=flat)
            np.maximum(flat, -self.clip, out=flat)
        return flat.astype(np.float32).reshape(obs.shape)
