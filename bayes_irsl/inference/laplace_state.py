"""Where the Laplace optimiser stands and begins, and the free coordinates of abilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from bayes_irsl.cells import Problem
from bayes_irsl.inference.item_integrals import Abilities
from bayes_irsl.inference.structure import Structure

# Below this ratio of an ability's variance to the abilities' spread its uncertainty does not move the items.
NEGLIGIBLE = 3e-4


@dataclass
class LaplaceState:
    """Where the optimiser stands: abilities and their conditional sd (D, S), hyperparameters, items' modes (J, d)."""

    theta: np.ndarray
    sd: np.ndarray
    h: np.ndarray
    x: np.ndarray

    @property
    def moment(self) -> np.ndarray:
        """E sum_s theta_s theta_s' (D, D) under independent abilities with this mean and sd."""
        return self.theta @ self.theta.T + np.diag((self.sd**2).sum(1))

    def abilities(self) -> Abilities:
        """Abilities as the item integrals take them; their uncertainty is dropped where it changes nothing."""

        def arranged(values: np.ndarray) -> Any:
            return jnp.asarray(values.T if len(values) > 1 else values[0], jnp.float32)

        matters = float(np.mean(self.sd**2)) > NEGLIGIBLE * float(np.mean(self.theta**2))
        return Abilities(arranged(self.theta), arranged(self.sd) if matters else None)


def start(problem: Problem, s: Structure) -> LaplaceState:
    """Abilities from the rows' average logit, everything else at the priors' centres."""
    r = problem.responses
    share = r.answer[problem.order] / (1 if r.trials is None else r.trials[problem.order])
    item = np.repeat(np.arange(problem.n_items), problem.counts)
    subject = problem.subject[problem.order]
    dimension = problem.dimension[item]
    mean_item = np.bincount(item, share, problem.n_items) / problem.counts
    centred = share - mean_item[item]
    slot = dimension.astype(np.int64) * problem.n_subjects + subject
    size = s.n_dimensions * problem.n_subjects
    n = np.bincount(slot, minlength=size)
    average = np.bincount(slot, centred, size) / np.maximum(n, 1)
    spread = max(float(np.mean(mean_item * (1 - mean_item))), 0.02)
    theta = (average / spread * n / (n + 2)).reshape(s.n_dimensions, problem.n_subjects)
    theta = theta - theta.mean(1, keepdims=True)
    theta = theta / max(float(theta.std()), 1e-3)
    x = np.zeros((problem.n_items, s.n_item), np.float32)
    h = s.start()
    logit = np.log((mean_item * problem.counts + 0.5) / ((1 - mean_item) * problem.counts + 0.5))
    for k, name in enumerate(s.item_names):
        if name == "intercept":
            x[:, k] = logit
        if name == "log_phi":
            x[:, k] = problem.spec.priors.log_phi.centre if hasattr(problem.spec.priors.log_phi, "centre") else 3.0
    at = 0
    for name, length, _ in s.free:
        if name == "mean_intercept":
            h[at : at + length] = [np.mean(logit[problem.benchmark == b]) for b in range(length)]
        if name == "sd_theta":
            h[at : at + length] = 0.0
        at += length
    if problem.anchor is not None:
        shift = _anchored_shift(s, problem, theta, mean_item)
        theta = theta + shift
        if "intercept" in s.item_names:
            x[:, s.item_names.index("intercept")] -= shift
        x[problem.anchor.known] = problem.anchor.mean[problem.anchor.known]
        at = 0
        for name, length, _ in s.free:
            if name == "mean_theta":
                h[at : at + length] = shift
            at += length
    return LaplaceState(theta, np.full_like(theta, 0.3), h, x)


def _anchored_shift(s: Structure, problem: Problem, theta: np.ndarray, mean_item: np.ndarray) -> float:
    """Where abilities must lie for the known items to be answered as well as they were: best of a grid."""
    assert problem.anchor is not None
    known = np.flatnonzero(problem.anchor.known)
    mean = problem.anchor.mean[known]
    log_a = mean[:, s.item_names.index("log_a")] if "log_a" in s.item_names else np.zeros(len(known))
    grid = np.linspace(-5, 5, 41)
    eta = np.exp(log_a) * (theta.ravel()[:, None] + grid[:, None, None])
    expected = expit(eta + mean[:, s.item_names.index("intercept")]).mean(1)
    return float(grid[np.argmin(((expected - mean_item[known]) ** 2).sum(1))])


class FreeAbilities:
    """Orthonormal free coordinates of abilities (D, S).

    With ``zero_sum`` each dimension sums to zero over subjects: a Householder reflection, one coordinate dropped.
    """

    def __init__(self, n_dimensions: int, n_subjects: int, zero_sum: bool) -> None:
        self.d, self.s, self.zero_sum = n_dimensions, n_subjects, zero_sum
        v = np.full(n_subjects, 1 / np.sqrt(n_subjects))
        v[0] -= 1
        self.v = v / np.linalg.norm(v)

    def reflect(self, a: np.ndarray) -> np.ndarray:
        """Apply the reflection to the first axis, dimension by dimension."""
        if not self.zero_sum:
            return a
        shape = a.shape
        a = a.reshape(self.d, self.s, -1)
        a = a - 2 * self.v[None, :, None] * np.einsum("s,dsk->dk", self.v, a)[:, None]
        return a.reshape(shape)

    @property
    def keep(self) -> np.ndarray:
        """Positions of the free coordinates after reflection."""
        return np.flatnonzero(np.tile(np.arange(self.s) >= int(self.zero_sum), self.d))

    def restrict(self, matrix: np.ndarray) -> np.ndarray:
        """(D S, ...) -> (free, ...)."""
        return self.reflect(matrix)[self.keep]

    def expand(self, free: np.ndarray) -> np.ndarray:
        """(free, ...) -> (D S, ...)."""
        full = np.zeros((self.d * self.s, *free.shape[1:]))
        full[self.keep] = free
        return self.reflect(full)
