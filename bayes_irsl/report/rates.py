"""One page about repeated sampling: what was asked, whether to trust it, and pass@k far beyond the samples taken."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from bayes_irsl import plots
from bayes_irsl.diagnostics import Diagnostics
from bayes_irsl.diagnostics.rates import rate_checks
from bayes_irsl.forecasts.passk import pass_at_k
from bayes_irsl.forecasts.tails import compare_tails
from bayes_irsl.repeated_fit import counts
from bayes_irsl.report import page, sections
from bayes_irsl.spec import RepeatedSampling

K = (1, 10, 100, 1000, 10_000)
FAN = np.unique(np.logspace(0, 4, 33).round())
# Subjects beyond which the tails are compared on a few only, spread over their rates.
MOST = 8


class RatesReport(page.Page):
    """Diagnostics and pass@k of a fit of RepeatedSampling; text, HTML in a notebook, or a file."""

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """All checks."""
        return rate_checks(self.fit)

    @cached_property
    def tails(self) -> pd.DataFrame:
        """:func:`bayes_irsl.compare_tails` of the fit's own tail, a logit tail, and both with a share never solved."""
        r = self.fit.responses
        c, n = counts(r)
        rate = np.bincount(r.subject_index, c, r.n_subjects) / np.bincount(r.subject_index, n, r.n_subjects).clip(1)
        order = np.argsort(rate)
        few = order[np.unique(np.linspace(0, len(order) - 1, MOST).round().astype(int))]
        chosen = r if r.n_subjects <= MOST else r.select(subjects=np.asarray(r.subjects.index)[few].tolist())
        names = dict.fromkeys((self.fit.spec.tail, "beta", "logit-normal"))
        specs = [RepeatedSampling(tail, never) for tail in names for never in (False, True)]
        return compare_tails(chosen, specs, k=K[2:], seed=self.fit.seed)

    @cached_property
    def _fragment(self) -> str:
        r = self.fit.responses
        parts = {
            "What was asked": self._asked(),
            "Checks": sections.checks(self.diagnostics),
            "pass@k": self._table(),
            "Far beyond the samples taken": self._fans(),
            "How much rests on the tail": self._tails(),
            "How to do it again": page.again(self.fit, "rates.nc"),
        }
        samples = int(counts(r)[1].sum())
        return self._whole(
            "Repeated sampling", f"{r.n_subjects:,} subjects, {r.n_items:,} items, {samples:,} samples.", parts
        )

    def _asked(self) -> str:
        spec, n = self.fit.spec, counts(self.fit.responses)[1]
        never = ", and a share of its own that it never solves" if spec.never else ""
        return page.facts(
            {
                "question": "What does sampling k times buy?",
                "rates over items": f"{spec.tail} tail of every subject, partially pooled{never}",
                "samples of an item": f"{int(n.min()):,} to {int(n.max()):,}, median {int(np.median(n)):,}",
                "method": {"quadrature": "a grid a subject, importance sampling of what they share"}.get(
                    self.fit.method, "NUTS"
                ),
            }
        )

    def _table(self) -> str:
        found = pass_at_k(self.fit, K, seed=self.fit.seed)
        parts = []
        for name in found["benchmark"].to_numpy():
            one = found.sel(benchmark=name)
            shown = {
                f"k = {k:,}": page.with_interval(
                    one["pass_at_k_mean"].sel(k=k), one["pass_at_k_lower"].sel(k=k), one["pass_at_k_upper"].sel(k=k)
                )
                for k in K
            }
            table = pd.DataFrame(shown, index=pd.Index(one["subject"].to_numpy(), name="subject"))
            parts.append(page.table(table, f"{name}: posterior mean [90 % equal-tailed interval] for the given items."))
        return "".join(parts)

    def _fans(self) -> str:
        found = pass_at_k(self.fit, FAN, seed=self.fit.seed)
        observed = plots.observed_pass_at_k(self.fit.responses)
        out = []
        for name in found["benchmark"].to_numpy():
            fan = plots.passk_fan(found, observed, benchmark=str(name))
            tail = plots.tail_plot(found, benchmark=str(name))
            out += [page.figure(fan, f"pass@k of {name}"), page.figure(tail, f"What is left unsolved of {name}")]
        return "".join(out)

    def _tails(self) -> str:
        table = self.tails
        scores = table.groupby(["tail", "never"], sort=False)[["gain", "gain_se"]].first()
        far = table[table["k"] == K[-1]].groupby(["tail", "never"], sort=False)
        scores["gain"] = page.with_interval(
            scores["gain"], scores["gain"] - 1.645 * scores["gain_se"], scores["gain"] + 1.645 * scores["gain_se"], 4
        )
        ends = far[["mean", "lower", "upper"]].mean()
        scores[f"k = {K[-1]:,}"] = page.with_interval(ends["mean"], ends["lower"], ends["upper"])
        scores = scores.drop(columns="gain_se").reset_index()
        scores["never"] = scores["never"].map({True: "some never solved", False: ""})
        return page.table(
            scores.set_index("tail"),
            "Predictive score of half of the samples given the other half, nats a cell against the best tail [90 % "
            "interval], and pass@k by it, mean over subjects of mean and interval ends. Where scores are level and "
            "pass@k is not, the data cannot tell: sample the unsolved items more.",
        )
