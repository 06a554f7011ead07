"""Item Response Scaling Laws as their authors forecast: point abilities, a straight line over log compute.

arXiv 2606.07616, section 4: abilities and items are calibrated together, then theta = alpha + beta
log C by least squares within a family, and the accuracy is the mean of the items' curves at that theta. The spread,
which theirs lacks, is a residual bootstrap of the line.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit

from bayes_irsl.abilities import is_aggregate
from bayes_irsl.baselines.scaling import bootstrapped_line
from bayes_irsl.errors import InputError
from bayes_irsl.item_fit import Run, fit_items
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class IrslLine:
    """Point abilities and least squares over log10 compute, by group where ``group`` names a subject column.

    Parameters
    ----------
    items : the item response model, of one ability.
    draws : of the residual bootstrap.
    """

    items: ItemResponse = field(default_factory=ItemResponse)
    group: str | None = None
    draws: int = 1000

    def predict(self, train: Responses, test: pd.DataFrame, seed: int) -> dict[str, Floats]:
        """Draws (n, T) of accuracies of the test subjects, by benchmark.

        Raises
        ------
        InputError
            Scores of whole benchmarks, which have no items; or a subject without compute.
        """
        if is_aggregate(train):
            raise InputError("scores of whole benchmarks have no items: point abilities need answers")
        run = Run("laplace", seed, 200, 1, 0, 0.8, 10, 0, False)
        _, tree = fit_items(self.items, train, run)
        point = {k: tree.posterior[k].mean(("chain", "draw")) for k in ("theta", "a", "b", "c") if k in tree.posterior}
        a, b = point["a"].to_numpy(), point["b"].to_numpy()
        c = point["c"].to_numpy() if "c" in point else np.zeros_like(a)
        of_item = np.asarray(train.items["benchmark"], dtype=str)
        facts = train.subjects.assign(theta=point["theta"].to_numpy())
        rng = np.random.default_rng([seed, 9])
        out = {}
        for name, part in test.groupby("benchmark", sort=False):
            here = of_item == name
            theta = self._line(facts, part, rng)
            out[str(name)] = (c[here] + (1 - c[here]) * expit(a[here] * (theta[..., None] - b[here]))).mean(-1)
        return out

    def _line(self, facts: pd.DataFrame, test: pd.DataFrame, rng: np.random.Generator) -> Floats:
        """Draws (n, T) of abilities."""
        own, asked = (np.zeros(len(t)) if self.group is None else t[self.group].to_numpy() for t in (facts, test))
        out = np.empty((self.draws, len(test)))
        for name in dict.fromkeys(asked.tolist()):
            seen = facts[own == name] if (own == name).sum() >= 3 else facts
            out[:, asked == name] = bootstrapped_line(
                seen, seen["theta"].to_numpy(float), test[asked == name], ["compute"], rng, self.draws
            )
        return out
