"""One page about a trajectory: what was asked, whether to trust it, what a decade is worth, and the fan."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bayes_irsl import plots
from bayes_irsl.covariates import layout
from bayes_irsl.diagnostics import Diagnostics
from bayes_irsl.diagnostics.trajectory import trajectory_checks
from bayes_irsl.forecasts.forecasting import forecast
from bayes_irsl.forecasts.new_scores import chosen
from bayes_irsl.forecasts.passk import pass_at_k
from bayes_irsl.forecasts.score_table import score_table
from bayes_irsl.report import page, sections
from bayes_irsl.spec import RepeatedSampling

# Decades that fans go beyond the data, places on each, and the most benchmarks and groups that are drawn.
BEYOND, PLACES, MOST = 0.7, 12, 6
# Numbers of samples of a fan of pass@k.
K = np.unique(np.logspace(0, 4, 17).round())


class TrajectoryReport(page.Page):
    """Diagnostics and results of a trajectory; text, HTML in a notebook, or a file."""

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """All checks."""
        return trajectory_checks(self.fit)

    @cached_property
    def _fragment(self) -> str:
        r = self.fit.responses
        parts = {
            "What was asked": self._asked(),
            "Checks": sections.checks(self.diagnostics),
            "What a decade is worth": page.table(decades(self.fit), DECADES_CAPTION),
            **self._effects(),
            "Forecasts": self._fans(),
            "How to do it again": page.again(self.fit, "trend.nc"),
        }
        line = f"{r.n_subjects:,} subjects, {r.n_items:,} items, {r.n_obs:,} answers."
        return self._whole("Ability over compute", line, parts)

    def _asked(self) -> str:
        place, spec = layout(self.fit.spec, self.fit.responses.subjects), self.fit.spec
        reference = ", ".join(f"{n} {10**x:.2e}" for n, x in zip(place.covariates, place.reference, strict=True))
        sampler = "NUTS" if "diverging" in self.fit.tree["sample_stats"].dataset else "importance sampling"
        how = {
            "staged": f"items by Laplace, then the trajectory by {sampler}",
            "laplace": "items by Laplace, then the trajectory by Laplace",
            "nuts": "items and trajectory by NUTS",
        }
        return page.facts(
            {
                "question": "What do subjects score at compute that nobody has evaluated?",
                "runs over": " and ".join(place.covariates),
                "levels are stated at": reference,
                "groups": f"{len(place.groups)} by {spec.pool}" if place.grouped else "none",
                "abilities are on": f"the {spec.questions} questions",
                "residuals": "correlated along a run" if place.along_run else "every subject by itself",
                "method": how[self.fit.method],
                "scale": json.loads(self.fit.tree.attrs["scale"]),
            }
        )

    def _effects(self) -> dict[str, str]:
        """What other covariates are worth, where there are any."""
        if not self.fit.spec.extra:
            return {}
        return {"What other covariates are worth": page.table(effects(self.fit), EFFECTS_CAPTION)}

    def _fans(self) -> str:
        place = layout(self.fit.spec, self.fit.responses.subjects)
        first = place.coordinates[:, 0]
        x = np.linspace(first.min(), first.max() + BEYOND, PLACES) + place.reference[0]
        where: dict[str, Any] = {place.covariates[0]: 10.0**x}
        if place.extra is not None:
            latest = place.extra_reference + place.extra_sd * place.extra.max(0)
            where["extra"] = dict(zip(place.extras, latest, strict=True))
        if len(place.covariates) == 2:
            where["tokens"] = 10.0 ** (place.coordinates[:, 1].max() + place.reference[1])
        if isinstance(self.fit.spec.items, RepeatedSampling):
            return self._passk(where)
        pools = list(place.groups[:MOST]) if place.grouped else None
        found = forecast(self.fit, **where, pool=pools, measured=True)
        seen = score_table(self.fit.responses)
        if "tokens" in where:
            seen = seen[seen["tokens"] > 0.99 * where["tokens"]]
        names = chosen(self.fit, None)[:MOST]
        fans = [page.figure(plots.forecast_fan(found, seen, benchmark=b), f"Forecast of {b}") for b in names]
        split = page.figure(plots.variance_split(found, benchmark=names[0]), "Where the variance comes from")
        at = f"<p>At {where['tokens']:.2e} tokens; dots are subjects there.</p>" if "tokens" in where else ""
        return at + "".join(fans) + split

    def _passk(self, where: dict[str, Any]) -> str:
        """pass@k of new subjects at the first, the middle and the last of the places."""
        few: dict[str, Any] = {k: v[[0, PLACES // 2, -1]] if isinstance(v, np.ndarray) else v for k, v in where.items()}
        found = pass_at_k(self.fit, K, population=True, **few)
        fans = [plots.passk_fan(found, benchmark=str(b)) for b in found["benchmark"].to_numpy()[:MOST]]
        return "".join(page.figure(fan, "pass@k of subjects not yet trained") for fan in fans)


DECADES_CAPTION = (
    "Ability gained per decade at the reference: posterior mean [90 % equal-tailed interval]; and what the next decade "
    "gives of what the last one gave (bend)."
)


EFFECTS_CAPTION = (
    "Decades of compute that one unit of a covariate (a year, for dates) is worth: posterior mean [90 % equal-tailed "
    "interval]."
)


def effects(fit: Any) -> pd.DataFrame:
    """Decades of compute per unit of every other covariate."""
    place = layout(fit.spec, fit.responses.subjects)
    draws = fit.tree["posterior"].dataset["effect"].stack(sample=("chain", "draw")) / place.extra_sd[:, None]
    low, high = np.quantile(draws, [0.05, 0.95], axis=-1)
    shown = page.with_interval(draws.mean("sample").to_numpy(), low, high)
    return pd.DataFrame({"covariate": place.extras, "decades per unit": shown}).set_index("covariate")


def decades(fit: Any) -> pd.DataFrame:
    """Ability gained per decade of each covariate, by ability, and how much less the next decade gives."""
    posterior = fit.tree["posterior"].dataset
    direction = posterior.get("direction", 1.0)
    gain = (posterior["slope"] * posterior["pull"] * direction).stack(sample=("chain", "draw"))
    keeps = np.exp(-posterior["bend"]).stack(sample=("chain", "draw"))
    rows = []
    for ability in gain["dimension"].to_numpy():
        for covariate in gain["covariate"].to_numpy():
            row: dict[str, Any] = {"ability": ability, "covariate": covariate}
            for name, value in (
                ("gain", gain.sel(dimension=ability, covariate=covariate)),
                ("next decade", keeps.sel(covariate=covariate)),
            ):
                row |= dict(
                    zip(
                        (name, f"{name}_lower", f"{name}_upper"),
                        (float(value.mean()), *np.quantile(value, [0.05, 0.95])),
                        strict=True,
                    )
                )
            rows.append(row)
    table = pd.DataFrame(rows)
    shown = table[["ability", "covariate"]].copy()
    for name in ("gain", "next decade"):
        shown[name] = page.with_interval(table[name], table[f"{name}_lower"], table[f"{name}_upper"])
    return shown.set_index("ability")
