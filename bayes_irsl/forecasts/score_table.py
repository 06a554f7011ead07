"""Observed accuracies of subjects on benchmarks beside their covariates: what scaling laws are usually fitted to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from bayes_irsl.abilities import chance_of
from bayes_irsl.responses import Responses

Floats = npt.NDArray[np.floating]


def score_table(responses: Responses) -> pd.DataFrame:
    """One row a subject and benchmark that has answers.

    Returns
    -------
    DataFrame
        Columns subject, benchmark; score: mean over the items answered, in [0, 1]; answers: trials behind it (NaN where
        answers are probabilities); chance: mean chance level of the items (0 where unknown); and the subjects' own
        columns, with compute = 6 params tokens where it is not given.
    """
    benchmark = np.asarray(responses.items["benchmark"], dtype=str)
    cells = pd.DataFrame(
        {
            "subject": np.asarray(responses.subjects.index, dtype=str)[responses.subject_index],
            "benchmark": benchmark[responses.item_index],
            "score": np.asarray(responses.rate, float),
            "answers": _trials(responses),
            "chance": chance_of(responses.items)[responses.item_index],
        }
    )
    by = cells.groupby(["subject", "benchmark"], sort=False)
    table = by.agg(score=("score", "mean"), answers=("answers", "sum"), chance=("chance", "mean")).reset_index()
    if responses.kind == "probability":
        table["answers"] = np.nan
    facts = responses.subjects.copy()
    facts.index = facts.index.astype(str)
    if "compute" not in facts and {"params", "tokens"} <= set(facts.columns):
        facts["compute"] = 6.0 * facts["params"] * facts["tokens"]
    return table.join(facts, on="subject")


def _trials(responses: Responses) -> Floats:
    return np.ones(responses.n_obs) if responses.trials is None else np.asarray(responses.trials, float)
