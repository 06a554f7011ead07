"""Anchoring: some items are known from a bank, with their uncertainty, and the fit is on the bank's scale."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bayes_irsl._validate import some
from bayes_irsl.cells import Anchor, Problem
from bayes_irsl.errors import InputError
from bayes_irsl.inference.structure import item_names

if TYPE_CHECKING:
    from bayes_irsl.bank import ItemBank

# Least standard deviation of a known parameter: items given as numbers are not known better than this.
_LEAST_SD = 1e-3


def anchored(problem: Problem, bank: ItemBank) -> Problem:
    """The problem with the items that ``bank`` knows pinned to its posterior of them, as a normal an item.

    Raises
    ------
    InputError
        No item in common, another curve, a bank of several abilities, or one that reached its scale by a link.
    """
    spec = problem.spec
    labels = np.asarray(problem.responses.items.index, dtype=str)[problem.kept_items]
    position = bank.items.index.get_indexer(labels)
    known = position >= 0
    if not known.any():
        raise InputError(
            f"no item with answers is in the anchoring bank: answers have {some(labels)}, "
            f"the bank {some(bank.items.index)}"
        )
    where = position[known]
    if spec.curve == "1pl":
        raise InputError("anchoring is for curves with a discrimination by item; join 1pl banks with bi.link instead")
    curves = sorted(set(bank.items["curve"].iloc[where].astype(str)))
    if curves != [spec.curve]:
        raise InputError(
            f"the bank's items have curve {curves}, the spec {spec.curve!r}: anchor with curve={curves[0]!r}"
        )
    if spec.abilities != "one" or len(bank.dimensions) > 1:
        raise InputError(
            "anchoring is for one ability; got "
            f"abilities={spec.abilities!r} and a bank with {list(bank.dimensions)}: fit and anchor one at a time"
        )
    if (bank.items["link"].iloc[where] != 0).any():
        raise InputError("the bank's items came by a link, whose error they share: anchor on the bank it leads to")
    names = item_names(spec)
    draws = np.stack([_draws(bank, problem, name, where, known) for name in names], -1)
    mean, common, covariance = _decomposed(draws, names)
    n, d = len(labels), len(names)
    table = Anchor(
        known, np.zeros((n, d), np.float32), np.zeros((n, d, 2), np.float32), np.zeros((n, d, d), np.float32)
    )
    table.tril[~known] = np.eye(d)
    table.mean[known], table.common[known], table.tril[known] = mean, common, np.linalg.cholesky(covariance)
    return replace(problem, anchor=table, scale=bank.scale, scale_id=bank.scale_id)


def _decomposed(draws: np.ndarray, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws (n, J, d) as mean (J, d) + common (J, d, 2) e + an own error of covariance (J, d, d); e standard normal.

    What calibration did not know of the scale is shared by all items: theta -> r theta + t moves log a by -log r and an
    intercept by -a t. Taken item by item it would average away, and the scale would be held for known. Its covariance
    is that of the generalised least squares estimate of (log r, t) in every draw, less the noise of that estimate.
    """
    mean = draws.mean(0)
    n, n_items, d = draws.shape
    centred = draws - mean
    covariance = np.einsum("njd,nje->jde", centred, centred) / max(n - 1, 1) + _LEAST_SD**2 * np.eye(d)
    direction = np.zeros((n_items, d, 2))
    direction[:, names.index("log_a"), 0] = -1
    direction[:, names.index("intercept"), 1] = -np.exp(mean[:, names.index("log_a")])
    weighted = np.linalg.solve(covariance, direction)
    noise = np.linalg.inv(np.einsum("jdk,jdl->kl", direction, weighted))
    moved = np.einsum("njd,jdk->nk", centred, weighted) @ noise
    value, vector = np.linalg.eigh(moved.T @ moved / max(n - 1, 1) - noise)
    root = vector * np.sqrt(np.maximum(value, 0.0))
    common = direction @ root
    own = covariance - common @ common.swapaxes(1, 2)
    value, vector = np.linalg.eigh(own)
    own = (vector * np.maximum(value, _LEAST_SD**2)[:, None]) @ vector.swapaxes(1, 2)
    return mean, common, own


def _draws(bank: ItemBank, problem: Problem, name: str, where: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Bank draws (draw, item) of an item parameter on the model's scale."""
    a, b = bank.a[:, where].astype(float), bank.b[:, where].astype(float)
    if name == "log_a":
        return np.log(a)
    if name == "intercept":
        return -a * b
    if name == "log_phi":
        if bank.phi is None:
            raise InputError("precision='item' needs a bank that holds phi; this one does not")
        return np.log(bank.phi[:, where].astype(float))
    centre, free = problem.logit_centre[known], problem.guessing_free[known]
    noise = np.random.default_rng(0).standard_normal(a.shape)  # a fixed c has a deviation that nothing depends on
    if bank.c is None:
        return noise
    c = bank.c[:, where].astype(float)
    deviation = (np.log(c) - np.log1p(-c) - centre) / problem.spec.priors.sd_logit_guessing
    return np.where(free > 0, deviation, noise)
