"""When a test has done enough."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from bayes_irsl.errors import InputError


@dataclass(frozen=True)
class Stop:
    """Rules of which the first that holds ends a test; which one is recorded.

    Parameters
    ----------
    sd : float
        Posterior sd of the target is at most this.
    width : float
        The target's equal-tailed 90 % interval is at most this wide.
    probability : float
        Of a :class:`~bayes_irsl.adaptive.targets.Better`: one of the two is better with at least this probability.
    max_items : int
        Questions asked, missing answers among them.
    max_cost : float
        Cost of the questions asked; a question that would exceed it is not asked.
    min_gain : float
        The best question is expected to shrink the target's sd by less than this share of it.
    min_items : int
        Answers before sd, width, probability or gain may end the test.
    """

    sd: float | None = None
    width: float | None = None
    probability: float | None = None
    max_items: int | None = None
    max_cost: float | None = None
    min_gain: float | None = None
    min_items: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            whole = field.name in ("max_items", "min_items")
            kind = int | np.integer if whole else int | float | np.number
            if isinstance(value, bool) or not isinstance(value, kind) or not np.isfinite(value) or value < 0:
                expected = "a whole number of at least 0" if whole else "a number of at least 0"
                raise InputError(f"Stop({field.name}={value!r}): expected {expected}")
        if self.probability is not None and not 0.5 < self.probability < 1:
            raise InputError(f"Stop(probability={self.probability!r}): expected a number between 0.5 and 1")

    def before(self, n_asked: int, cost: float, cheapest: float | None) -> str | None:
        """Why no question may be asked, whatever is known; ``cheapest``: cost among those left, None without any."""
        if self.max_items is not None and n_asked >= self.max_items:
            return f"max_items = {self.max_items} reached"
        if cheapest is None:
            return "bank exhausted: no question left that may be asked"
        if self.max_cost is not None and cost + cheapest > self.max_cost * (1 + 1e-9):
            return (
                f"max_cost = {self.max_cost:g} reached: {cost:g} spent, the cheapest question left costs {cheapest:g}"
            )
        return None

    def after(self, n_answers: int, sd: float, width: float, probability: float | None, gain: float) -> str | None:
        """Why what is known is enough; ``gain``: share of the sd that the best question is expected to take away."""
        if n_answers < self.min_items:
            return None
        if self.sd is not None and sd <= self.sd:
            return f"sd of the target {sd:.3g} <= {self.sd:g}"
        if self.width is not None and width <= self.width:
            return f"90 % interval of the target {width:.3g} wide <= {self.width:g}"
        if (
            self.probability is not None
            and probability is not None
            and max(probability, 1 - probability) >= self.probability
        ):
            return f"probability {max(probability, 1 - probability):.3g} >= {self.probability:g}"
        if self.min_gain is not None and gain < self.min_gain:
            return f"no gain expected: the best question takes {gain:.2%} of the sd < {self.min_gain:.2%}"
        return None
