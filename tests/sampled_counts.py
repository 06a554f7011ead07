"""Counts of repeated samples drawn from known tails."""

import numpy as np
import pandas as pd

import bayes_irsl as bi


def counts(n_subjects=6, n_items=80, trials=40, tie=0.3, never=0.0, seed=0, benchmark="MATH"):
    """Beta tails whose exponent is tied to the location; trials may be an array (S, J)."""
    rng = np.random.default_rng(seed)
    location = -2.5 + rng.standard_normal(n_subjects)
    shape = -0.8 + tie * (location + 2.5)
    alpha = np.exp(shape)[:, None]
    p = rng.beta(alpha, alpha * np.exp(-location)[:, None], (n_subjects, n_items))
    p = np.where(rng.uniform(size=p.shape) < never, 0.0, p)
    n = np.broadcast_to(trials, p.shape)
    names = [f"m{i}" for i in range(n_subjects)]
    items = pd.DataFrame({"benchmark": benchmark}, index=pd.Index([f"q{j}" for j in range(n_items)], name="item"))
    table = pd.DataFrame(rng.binomial(n, p), index=pd.Index(names, name="subject"), columns=items.index)
    return bi.Responses.from_wide(table, trials=n, items=items), p, location, shape
