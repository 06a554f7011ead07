"""The parts of a report, each a piece of HTML made from a fit."""

from __future__ import annotations

import json
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from bayes_irsl import plots
from bayes_irsl.diagnostics import Check, Diagnostics
from bayes_irsl.diagnostics.tables import item_table, most_discriminating, subject_table, summarise
from bayes_irsl.diagnostics.verdicts import format_value
from bayes_irsl.report import page
from bayes_irsl.report.page import merge_intervals

MOST_ROWS, MOST_WORST = 60, 12


def asked(fit: Any) -> str:
    """Spec, method and draws in one table."""
    posterior, spec = fit.tree["posterior"].dataset, fit.spec
    how = {
        "laplace": "Laplace approximation (independent draws)",
        "nuts": "NUTS (Markov chains)",
        "svi": "variational inference (independent draws)",
    }
    return page.facts(
        {
            "question": "How able are the subjects, and what do the items tell about it?",
            "likelihood": spec.likelihood + (f", squeezed with n = {spec.squeeze:,}" if spec.squeeze else ""),
            "curve": spec.curve + (f", guessing {spec.guessing}" if spec.curve == "3pl" else ""),
            "abilities": spec.abilities if spec.abilities == "one" else f"one per {spec.abilities}, {spec.dependence}",
            "method": how.get(fit.method, fit.method),
            "draws": f"{posterior.sizes['chain']} chains x {posterior.sizes['draw']:,}",
            "intervals": "equal-tailed, 90 %, unless a table says otherwise",
        }
    )


def answers(fit: Any) -> str:
    """What the answers are, per benchmark, and what was decided on the way in."""
    notes = "".join(f"<li>{escape(note)}</li>" for note in fit.responses.notes)
    summary = fit.responses.summary()
    shown = page.table(
        summary.head(MOST_ROWS), f"{fit.responses.kind} answers by benchmark: no estimates, so no intervals."
    )
    drawn = page.figure(plots.heat_map(fit), "All answers, subjects by ability and items by difficulty", full=True)
    return shown + (f"<ul>{notes}</ul>" if notes else "") + drawn


def checks(found: Diagnostics) -> str:
    """One row a check; tables of the worst behind a click."""
    head = "<tr><th>verdict</th><th>check</th><th>value</th><th>what was seen</th><th>what to do</th></tr>"
    rows = "".join(
        f"<tr><td>{page.badge(c.verdict)}</td><td><b>{escape(c.name)}</b></td>"
        f'<td data-label="value">{escape(format_value(c.value))}</td>'
        f'<td>{escape(c.detail)}</td><td data-label="to do">{escape(c.remedy)}</td></tr>'
        for c in found
    )
    tables = "".join(_worst(c) for c in found if len(c.table))
    skipped = "".join(f"<li>{escape(f'{name}: {why}')}</li>" for name, why in found.skipped.items())
    foot = f'<p class="faint">Not made:</p><ul class="faint">{skipped}</ul>' if skipped else ""
    lines = f'<table class="checks"><thead>{head}</thead><tbody>{rows}</tbody></table>'
    return f'<div class="wide">{lines}</div>{foot}{tables}'


def _worst(check: Check) -> str:
    top = check.table.head(MOST_WORST)
    if top.index.name is None:
        top = top.set_axis(pd.RangeIndex(1, len(top) + 1, name="rank"))
    part = "all" if len(top) == len(check.table) else "worst first"
    name = f"{check.name}: {len(top)} of {len(check.table):,}, {part}"
    caption = CHECK_CAPTIONS.get(check.name, "")
    return page.details(name, page.table(merge_intervals(top, 3), caption, digits=3))


CHECK_CAPTIONS = {
    "predicted row means": "predicted: posterior predictive mean [90 % equal-tailed interval].",
    "predicted column means": "predicted: posterior predictive mean [90 % equal-tailed interval].",
    "distribution of answers": "Shares of answers; predicted: posterior predictive mean [90 % equal-tailed interval].",
    "items across families": "shift: logits, + easier for the family at equal ability [90 % interval, normal].",
    "item fit": "difference: root mean square between means seen and predicted, over groups of ability.",
    "subject fit": "gap: log density per answer less that of replicates; z: the same, standardised.",
    "local dependence": "q3: adjusted residual correlation of the pair.",
}


def abilities(fit: Any) -> str:
    """Forest of abilities and their table; of many subjects the ablest and the least able."""
    frame = subject_table(fit)
    order = frame.sort_values("ability", ascending=False, kind="stable")
    shown = order if len(order) <= MOST_ROWS else pd.concat([order.head(MOST_ROWS // 2), order.tail(MOST_ROWS // 2)])
    part = "" if len(shown) == len(order) else f"; the first and last {MOST_ROWS // 2} of {len(order):,}"
    caption = f"ability: posterior mean [90 % equal-tailed interval]; calibration subjects have mean 0 and sd 1{part}."
    drawn = page.figure(plots.ability_forest(fit), "Abilities with intervals", full=True)
    drawn += page.figure(plots.wright_map(fit), "Abilities and difficulties on one scale")
    return drawn + page.table(merge_intervals(shown), caption)


def items(fit: Any) -> str:
    """Curves, discriminations, and the hardest, easiest and most discriminating items."""
    frame = item_table(fit)
    drawn = page.figure(plots.item_curves(fit), "Curves of an easy, a middling and a hard item")
    drawn += page.figure(plots.discriminations(fit), "Discriminations of all items with intervals")
    by_difficulty = frame.sort_values("b", kind="stable")
    lists = {
        "Surely discriminating": (most_discriminating(frame, 10), SURELY),
        "Easiest": (by_difficulty.head(5), ""),
        "Hardest": (by_difficulty.tail(5).iloc[::-1], ""),
    }
    shown = "".join(
        f"<h3>{escape(name)}</h3>{page.table(_flags_in_words(merge_intervals(part)), f'{text}{ITEMS_CAPTION}')}"
        for name, (part, text) in lists.items()
        if len(part)
    )
    return drawn + shown + hyperparameters(fit)


SURELY = "By the lower end of a's interval; items without variation or led by their prior are barred. "
ITEMS_CAPTION = "b: difficulty, a: discrimination, c: guessing; posterior mean [90 % equal-tailed interval]."


def _flags_in_words(frame: pd.DataFrame) -> pd.DataFrame:
    """The flags as one column of words, left out where no row has any."""
    words = {"no_variation": "no variation", "prior_led": "prior-led"}
    text = [", ".join(words[name] for name in words if row[name]) for _, row in frame.iterrows()]
    out = frame.drop(columns=list(words))
    return out.assign(flags=text) if any(text) else out


def hyperparameters(fit: Any) -> str:
    """Everything that is neither a subject's nor an item's, with intervals."""
    posterior = fit.tree["posterior"].dataset
    rows = {}
    for name, array in posterior.data_vars.items():
        dims = [d for d in array.dims if d not in ("chain", "draw")]
        if {"subject", "item"} & set(dims) or name == "correlation":
            continue
        values = summarise(array)
        places = np.ndindex(*(array.sizes[d] for d in dims))
        for place in places:
            where = ", ".join(str(array[d].to_numpy()[k]) for d, k in zip(dims, place, strict=True))
            rows[f"{name} of {where}" if where else str(name)] = {k: float(v[place]) for k, v in values.items()}
    if not rows:
        return ""
    frame = pd.DataFrame.from_dict(rows, orient="index").head(MOST_ROWS)
    shown = merge_intervals(frame).rename(columns={"mean": "posterior"})
    caption = "On the scale of the bank: posterior mean [90 % equal-tailed interval]."
    return f"<h3>Hyperparameters</h3>{page.table(shown, caption, index='name')}"


def reproduce(fit: Any) -> str:
    """Code, seed, versions and the hash of the answers."""
    attrs = {name: json.loads(value) for name, value in fit.tree.attrs.items()}
    posterior = fit.tree["posterior"].dataset
    chains, length = posterior.sizes["chain"], posterior.sizes["draw"]
    draws = length if fit.method == "nuts" else chains * length
    default = type(fit.spec)()
    changed = {
        name: getattr(fit.spec, name)
        for name in fit.spec.__dataclass_fields__
        if getattr(fit.spec, name) != getattr(default, name)
    }
    arguments = ", ".join(f"{name}={value!r}" for name, value in changed.items())
    arguments = arguments.replace("ItemPriors(", "bi.ItemPriors(").replace("Prior(family", "bi.Prior(family")
    code = (
        "import bayes_irsl as bi\n\n"
        f"# responses.data_hash == {attrs.get('data_hash', fit.responses.data_hash)!r}\n"
        f"spec = bi.ItemResponse({arguments})\n"
        f"fit = bi.fit(spec, responses, method={fit.method!r}, seed={fit.seed}, draws={draws}, chains={chains})\n"
        "fit.report().save('report.html')"
    )
    versions = ", ".join(f"{name} {version}" for name, version in attrs.get("versions", {}).items())
    known = {
        "seed": fit.seed,
        "answers (SHA-256)": attrs.get("data_hash", fit.responses.data_hash),
        "versions": versions,
        "device, precision": f"{attrs.get('device', '?')}, {attrs.get('precision', '?')}",
        "scale": attrs.get("scale", ""),
    }
    return f"<pre>{escape(code)}</pre>{page.facts(known)}"
