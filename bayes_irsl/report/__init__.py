"""One self-contained page about a fit: what was asked, whether to trust it, what was found, how to do it again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from html import escape
from typing import Any

import pandas as pd

from bayes_irsl import plots
from bayes_irsl.diagnostics import Diagnostics, Predictive, boundary_sensitivity, diagnose, replicate
from bayes_irsl.diagnostics.boundary import is_anchored, is_cheap, needs_a_rule
from bayes_irsl.report import page, sections
from bayes_irsl.report.model import equations, priors

__all__ = ["Report"]


class Report(page.Page):
    """Diagnostics and results of a fit; text, HTML in a notebook, or a file.

    Parameters
    ----------
    fit : Fit
    boundary : DataFrame, optional
        What other rules for exact 0 and 1 would change, from ``diagnostics.boundary_sensitivity(fit)``. Where there are
        exact 0 or 1 among probabilities and the refits are cheap, the report makes it by itself.
    tables : mapping of title to DataFrame, optional
        Further results to show after those of the fit, such as scores of new subjects; ``frame.attrs["caption"]`` is
        printed above.
    seed : int
        Of replicated answers.
    """

    def __init__(
        self,
        fit: Any,
        *,
        boundary: pd.DataFrame | None = None,
        tables: Mapping[str, pd.DataFrame] | None = None,
        seed: int = 0,
    ) -> None:
        self.fit, self.given_boundary, self.tables, self.seed = fit, boundary, dict(tables or {}), seed

    @cached_property
    def predictive(self) -> Predictive:
        """Replicated answers, made once."""
        return replicate(self.fit, self.seed)

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """All checks."""
        return diagnose(self.fit, seed=self.seed, predictive=self.predictive)

    @cached_property
    def boundary(self) -> pd.DataFrame | None:
        """What other rules for exact 0 and 1 would change; None where there are none, or the refits are not cheap."""
        if self.given_boundary is None and needs_a_rule(self.fit) and is_cheap(self.fit):
            return boundary_sensitivity(self.fit, seed=self.seed)
        return self.given_boundary

    def __repr__(self) -> str:
        text = repr(self.diagnostics)
        if self.boundary is not None:
            return f"{text}\n{EDGES_CAPTION}\n{edges_table(self.boundary).to_string(float_format='%.2f')}"
        return f"{text}\n{sensitivity(self.fit)}" if needs_a_rule(self.fit) else text

    @cached_property
    def _fragment(self) -> str:
        r = self.fit.responses
        title = f"<h1>Item response fit {page.badge(self.verdict)}</h1>"
        line = (
            f"<p>{r.n_subjects:,} subjects, {r.n_items:,} items, {r.n_obs:,} answers; {_headline(self.diagnostics)}</p>"
        )
        parts = {
            "What was asked": sections.asked(self.fit),
            "Answers": sections.answers(self.fit),
            "Model": f"{equations(self.fit)}{priors(self.fit)}",
            "Checks": sections.checks(self.diagnostics),
            "Answers seen and answers predicted": self._predicted(),
            "Abilities": sections.abilities(self.fit),
            "Items": sections.items(self.fit),
            "Exact 0 and 1": self._edges(),
            **{k: page.table(page.merge_intervals(v, 3), v.attrs.get("caption", "")) for k, v in self.tables.items()},
            "How to do it again": sections.reproduce(self.fit),
        }
        body = "".join(f"<h2>{escape(name)}</h2>{part}" for name, part in parts.items() if part)
        return page.fragment(title + line + body)

    def _predicted(self) -> str:
        drawn = [
            page.figure(plots.ppc_means(self.fit, "subjects", predictive=self.predictive), "Mean answers of subjects"),
            page.figure(plots.ppc_means(self.fit, "items", predictive=self.predictive), "Mean answers of items"),
            page.figure(plots.ppc_distribution(self.fit, predictive=self.predictive), "Distribution of the answers"),
        ]
        if self.fit.method == "nuts":
            drawn.append(page.figure(plots.ranks(self.fit), "Ranks of the parameter whose chains differ most"))
        return "".join(drawn)

    def _edges(self) -> str:
        if self.fit.responses.kind != "probability":
            return ""
        check = self.diagnostics["exact 0 and 1"]
        text = f"<p>{escape(check.detail)}</p>"
        if self.boundary is None:
            return f"{text}<p>{escape(sensitivity(self.fit))}</p>" if needs_a_rule(self.fit) else text
        return text + page.table(edges_table(self.boundary), EDGES_CAPTION)


EDGES_CAPTION = (
    "The same answers under other rules for exact 0 and 1. phi: posterior mean [90 % equal-tailed interval]. Shift: "
    "largest change of a posterior mean ability against this fit, in its posterior sds."
)


def _headline(found: Diagnostics) -> str:
    bad = [check for check in found if check.verdict != "PASS"]
    if not bad:
        return f"all {len(found)} checks pass."
    return f"{len(bad)} of {len(found)} checks ask for a look: {escape(', '.join(check.name for check in bad))}."


def sensitivity(fit: Any) -> str:
    """The call that makes the table where the report does not make it unasked."""
    anchored = is_anchored(fit)
    why = "refits need the anchoring bank" if anchored else f"refits of {fit.responses.n_obs:,} answers take long"
    return (
        f"How much another rule moves was not worked out: {why}. This call makes the table: "
        f"bayes_irsl.diagnostics.boundary_sensitivity(fit{', anchor=bank' if anchored else ''})."
    )


def edges_table(boundary: pd.DataFrame) -> pd.DataFrame:
    """Sensitivity to the rule for exact 0 and 1, for reading."""
    names = {
        "edge_answers": "exact 0 or 1",
        "largest_shift_sd": "shift (sd)",
        "rank_correlation": "rank correlation",
    }
    return page.merge_intervals(boundary).rename(columns=names)
