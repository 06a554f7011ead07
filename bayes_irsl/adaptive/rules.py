"""The rules of a session: which questions may be asked, whether it is over, and which question comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bayes_irsl.adaptive import policies, results
from bayes_irsl.adaptive.layout import draws
from bayes_irsl.adaptive.state import State
from bayes_irsl.adaptive.targets import Better

if TYPE_CHECKING:
    from bayes_irsl.adaptive.session import AdaptiveTest

Floats = npt.NDArray[np.floating]


def allowed(test: AdaptiveTest, state: State) -> np.ndarray:
    """Questions (J,) that are not asked, excluded, outside the policy's list or content, or too dear."""
    out = np.ones(test.bank.n_items, bool)
    out[test.where([*state.asked, *state.excluded, *test.exclude])] = False
    if test.order is not None and not isinstance(test.policy, str):
        only = np.zeros_like(out)
        only[test.order] = True
        out &= only
    if test.shares is not None:
        out &= np.isin(_content(test), test.shares.index[test.shares > 0])
    if test.stop.max_cost is not None:
        affordable = test.prices.min(1) <= _left(test, state)
        if (out & affordable).any():
            out &= affordable
    return out


def stopped(test: AdaptiveTest, state: State) -> str | None:
    """The stop rule that holds; None while there is none."""
    free, stop = allowed(test, state), test.stop
    cheapest = float(test.prices[free].min()) if free.any() else None
    reason = stop.before(len(state.asked), test.spent(state), cheapest)
    if reason is not None or (stop.sd, stop.width, stop.probability, stop.min_gain) == (None,) * 4:
        return reason
    found = test.known(state)
    sd, width, probability, gain = found.sd, np.inf, None, 1.0
    if isinstance(test.target, Better):
        sd = float(np.hypot(sd, test.target.sd))
    if stop.width is not None or stop.probability is not None:
        target, _ = draws(test.layout, found, state.seed)
        width = float(np.diff(np.quantile(target, [0.05, 0.95]))[0])
        probability = results.probability_better(test.target, target)
    if stop.min_gain is not None:
        ahead = test.known(state, waiting=True)
        best = policies.expected_gains(test.layout, ahead)[free].max()
        gain = 1 - np.sqrt(max(1 - best / max(ahead.sd**2, 1e-300), 0.0))
    n = sum(a.value is not None for a in state.answers)
    return stop.after(n, sd, width, probability, gain)


def choose(test: AdaptiveTest, state: State, gain: Floats | None = None) -> Any:
    """The question to ask; ``gain`` (J, options) where it is known already."""
    rng = np.random.default_rng([state.seed, 31, len(state.asked)])
    free = allowed(test, state)
    if test.shares is not None:
        free = policies.due(_content(test), test.shares, test.where(state.asked), free)
    if test.policy == "random" or rng.random() < test.explore:
        j = int(rng.choice(np.flatnonzero(free)))
        option = int(test.prices[j].argmin())
    elif test.order is not None or test.policy == "fixed":
        order = test.fixed if test.order is None else test.order
        left = order[free[order]]
        j = int(left[0]) if left.size else int(rng.choice(np.flatnonzero(free)))
        option = int(test.prices[j].argmin())
    else:
        if gain is None:
            of = policies.expected_gains if test.policy == "variance" else policies.fisher_information
            gain = of(test.layout, test.known(state, waiting=True))
        score = gain / test.prices
        if test.stop.max_cost is not None:
            score = np.where(test.prices <= _left(test, state), score, -np.inf)
        j = policies.best(score.max(1), free, rng, test.among)
        option = int(score[j].argmax())
    item = str(test.bank.items.index[j])
    return item if test.samples is None else (item, int(test.samples[option]))


def _left(test: AdaptiveTest, state: State) -> float:
    """What may still be spent."""
    most = np.inf if test.stop.max_cost is None else test.stop.max_cost
    return float(most * (1 + 1e-9) - test.spent(state))


def _content(test: AdaptiveTest) -> np.ndarray:
    return np.asarray(test.bank.items[test.content_by].astype(str))
