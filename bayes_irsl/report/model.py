"""The model of a spec in equations, and its priors, as plain HTML."""

from __future__ import annotations

from html import escape
from typing import Any

import pandas as pd

from bayes_irsl.report import page

MEAN = {
    "1pl": "logit μ<sub>sj</sub> = a (θ<sub>s</sub> − b<sub>j</sub>), one discrimination a for all items",
    "2pl": "logit μ<sub>sj</sub> = a<sub>j</sub> (θ<sub>s</sub> − b<sub>j</sub>), a<sub>j</sub> &gt; 0",
    "3pl": "μ<sub>sj</sub> = c<sub>j</sub> + (1 − c<sub>j</sub>) "
    "sigmoid(a<sub>j</sub> (θ<sub>s</sub> − b<sub>j</sub>)), a<sub>j</sub> &gt; 0",
}
ANSWER = {
    "bernoulli": "y<sub>sj</sub> ~ Bernoulli(μ<sub>sj</sub>)",
    "binomial": "y<sub>sj</sub> ~ Binomial(n<sub>sj</sub>, μ<sub>sj</sub>)",
    "beta-binomial": "y<sub>sj</sub> ~ Beta-binomial(n<sub>sj</sub>, μ<sub>sj</sub> φ, (1 − μ<sub>sj</sub>) φ)",
    "beta": "y<sub>sj</sub> ~ Beta(μ<sub>sj</sub> φ, (1 − μ<sub>sj</sub>) φ)",
    "ordered-beta": "y<sub>sj</sub> = 0 with probability sigmoid(−logit μ<sub>sj</sub> − k<sub>0</sub>), 1 with "
    "probability sigmoid(logit μ<sub>sj</sub> − k<sub>1</sub>), else ~ Beta(μ<sub>sj</sub> φ, (1 − μ<sub>sj</sub>) φ)",
    "zero-one-beta": "y<sub>sj</sub> is 0 or 1 with a probability of its own, else ~ "
    "Beta(μ<sub>sj</sub> φ, (1 − μ<sub>sj</sub>) φ)",
}
MEANING = {
    "mean_intercept": "mean over a benchmark's items of the logit of a right answer by an average subject",
    "sd_intercept": "its spread over a benchmark's items",
    "sd_theta": "spread of abilities while fitting (afterwards the scale has mean 0 and sd 1)",
    "sd_log_a": "spread of log discriminations",
    "sd_mean_log_a": "spread of the benchmarks' mean log discriminations",
    "logit_guessing": "centre of logit c where no chance level is known",
    "sd_logit_guessing": "spread of logit c around it",
    "log_phi": "log precision φ of the answers",
    "sd_log_phi": "spread of the items' log precisions",
    "cut": "distance of the cutpoints k0 and k1 from 0",
    "logit_boundary": "logit of the probability of an exact 0 or 1",
    "logit_one": "logit of the probability that such an answer is 1",
    "lkj": "concentration of the LKJ prior of correlations between abilities",
}


def equations(fit: Any) -> str:
    """How answers arise, and what ties subjects and items together."""
    spec = fit.spec
    ability = "θ<sub>s</sub> ~ Normal(0, sd_theta)"
    if spec.abilities != "one":
        kind = "correlated (LKJ)" if spec.dependence == "correlated" else "a common ability and an own part (testlet)"
        ability = f"θ<sub>s</sub> one ability per {escape(spec.abilities)}, {kind}"
    lines = [ANSWER[spec.likelihood], MEAN[spec.curve], ability]
    lines.append("−a<sub>j</sub> b<sub>j</sub> ~ Normal(mean_intercept, sd_intercept), both of the item's benchmark")
    if spec.curve != "1pl":
        lines.append("log a<sub>j</sub> ~ Normal(mean of the item's benchmark, sd_log_a)")
    if spec.precision == "item" and spec.likelihood not in ("bernoulli", "binomial"):
        lines.append("log φ<sub>j</sub> ~ Normal(log_phi, sd_log_phi), one φ an item")
    return f'<div class="model">{"<br>".join(lines)}</div>'


def priors(fit: Any) -> str:
    """The priors that this spec uses, each with its meaning."""
    spec = fit.spec
    used = ["mean_intercept", "sd_intercept", "sd_theta"]
    if spec.curve != "1pl":
        used += ["sd_log_a"] + ["sd_mean_log_a"] * (fit.responses.items["benchmark"].nunique() > 1)
    if spec.curve == "3pl":
        used += ["logit_guessing", "sd_logit_guessing"]
    if spec.likelihood not in ("bernoulli", "binomial"):
        used += ["log_phi"] + ["sd_log_phi"] * (spec.precision == "item")
    used += {"ordered-beta": ["cut"], "zero-one-beta": ["logit_boundary", "logit_one"]}.get(spec.likelihood, [])
    if spec.abilities != "one" and spec.dependence == "correlated":
        used.append("lkj")
    frame = pd.DataFrame(
        {"prior": [str(getattr(spec.priors, name)) for name in used], "of": [MEANING[name] for name in used]},
        index=used,
    )
    return page.table(frame, "A number in the place of a prior fixes the value.", index="name")
