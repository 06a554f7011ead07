"""From answers to scores: calibrate a bank on most models, score the others from 50 questions each, and write a report.

Run it as ``python -m bayes_irsl.demo``; files go to ``out/``.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from tqdm.auto import tqdm

import bayes_irsl as bi
from bayes_irsl.report import Report
from bayes_irsl.report.page import merge_intervals

QUESTIONS = 50
HELD_OUT = 6
# Addition and multiplication are two skills: with one ability for both, the report asks for a look, and intervals of
# scores are too narrow.
SPECS = {"pythia-arithmetic": bi.ItemResponse(abilities="benchmark"), "mmlu-pro": bi.ItemResponse()}
CAPTION = (
    f"Models that the bank has not seen, scored from {QUESTIONS} of their answers drawn at random; equal-tailed 90 % "
    "intervals. bank: posterior of the score on all questions. answers alone: mean of the answers drawn (Jeffreys). "
    "all answers: mean of all that the model answered (Jeffreys). inside: whether the bank's interval holds the latter."
)


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    """Run the demonstration and return the table that it prints."""
    parser = argparse.ArgumentParser(prog="python -m bayes_irsl.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the report and the bank")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    tables = []
    with tqdm(total=4, desc="demo", unit="step", file=sys.stderr) as bar:
        for name, spec in SPECS.items():
            bar.set_postfix_str(f"calibrating on {name}")
            fit, bank, table = calibrate_and_score(name, spec, options.seed)
            tables.append(table)
            bar.update()
        bar.set_postfix_str("checking the fit")
        scores = pd.concat(tables)
        scores.attrs["caption"] = CAPTION
        report = Report(fit, tables={"New models from 50 questions each": scores})
        verdict = report.verdict
        bar.update()
        bar.set_postfix_str("writing bank and report")
        files = bank.save(options.out / "bank.nc"), report.save(options.out / "demo_report.html")
        bar.update()
        bar.set_postfix_str("done")
    print(f"\n{CAPTION}\n\n{merge_intervals(scores, 3).to_string()}\n")
    inside, n = int((scores["inside"] == "yes").sum()), len(scores)
    low, high = stats.beta.ppf([0.05, 0.95], inside + 0.5, n - inside + 0.5)
    print(
        f"The bank's 90 % interval holds {inside / n:.2f} [{low:.2f}, {high:.2f}] of the {n} scores (Jeffreys, 90 %)."
    )
    print("An illustration, no validation: abilities by operation were chosen after a look at these very scores.")
    print(f"Checks of the fit to {name}: {verdict}. Written: {files[0]}, {files[1]}")
    return scores


def calibrate_and_score(name: str, spec: bi.ItemResponse, seed: int) -> tuple[bi.Fit, bi.ItemBank, pd.DataFrame]:
    """Fit a dataset without some of its subjects, and score those from a few of their answers."""
    responses = bi.load_dataset(name)
    held_out = spread_out(responses)
    calibration = [label for label in responses.subjects.index if label not in held_out]
    fit = bi.fit(spec, responses.select(subjects=calibration), method="laplace", seed=seed)
    bank = bi.ItemBank.from_fit(fit, seed=seed)
    new = responses.select(subjects=held_out)
    asked = some_answers(new, QUESTIONS, seed)
    return fit, bank, compare(bi.score(bank, asked, seed=seed), asked, new)


def spread_out(responses: bi.Responses) -> list[str]:
    """A few subjects from weak to strong; the very weakest and strongest stay in the calibration."""
    count = np.bincount(responses.subject_index, minlength=responses.n_subjects)
    mean = np.bincount(responses.subject_index, responses.rate, responses.n_subjects) / count
    order = np.argsort(mean, kind="stable")
    chosen = np.linspace(1, len(order) - 2, HELD_OUT).round().astype(int)
    return [str(label) for label in responses.subjects.index[order[chosen]]]


def some_answers(responses: bi.Responses, n: int, seed: int) -> bi.Responses:
    """``n`` random answers of every subject."""
    rng = np.random.default_rng(seed)
    order, starts = responses.by_subject()
    parts = [rng.choice(order[a:b], min(n, b - a), replace=False) for a, b in pairwise(starts)]
    cells = np.sort(np.concatenate(parts))
    frame = pd.DataFrame(
        {
            "subject": responses.subjects.index[responses.subject_index[cells]],
            "item": responses.items.index[responses.item_index[cells]],
            "answer": responses.answer[cells],
        }
    )
    if responses.trials is None:
        return bi.Responses.from_long(frame, subjects=responses.subjects, items=responses.items)
    frame = frame.rename(columns={"answer": "successes"}).assign(trials=responses.trials[cells])
    return bi.Responses.from_long(
        frame, successes="successes", trials="trials", subjects=responses.subjects, items=responses.items
    )


def compare(scores: Any, asked: bi.Responses, everything: bi.Responses) -> pd.DataFrame:
    """Scores by the bank beside the answers alone and the whole table, each with its 90 % interval."""
    rows = []
    for benchmark in scores["benchmark"].to_numpy():
        for subject in scores["subject"].to_numpy():
            score = scores.sel(subject=subject, benchmark=benchmark)
            low, high = float(score["score_lower"]), float(score["score_upper"])
            known, alone = (_share(part, subject, benchmark) for part in (everything, asked))
            rows.append(
                {
                    "benchmark": str(benchmark),
                    "model": str(subject),
                    "questions": alone[3],
                    "bank": float(score["score_mean"]),
                    "bank_lower": low,
                    "bank_upper": high,
                    **dict(
                        zip(
                            ("answers alone", "answers alone_lower", "answers alone_upper"),
                            alone,
                            strict=False,
                        )
                    ),
                    **dict(zip(("all answers", "all answers_lower", "all answers_upper"), known, strict=False)),
                    "inside": "yes" if low <= known[0] <= high else "no",
                }
            )
    return pd.DataFrame(rows).set_index("model")


def _share(responses: bi.Responses, subject: str, benchmark: str) -> tuple[float, float, float, int]:
    """Mean answer, its Jeffreys interval (wide enough for shares too: they vary less than 0/1), number of answers."""
    items = responses.items["benchmark"].to_numpy() == benchmark
    mine = responses.subjects.index.get_loc(subject) == responses.subject_index
    rate = responses.rate[mine & items[responses.item_index]].astype(float)
    total, n = rate.sum(), rate.size
    low, high = stats.beta.ppf([0.05, 0.95], total + 0.5, n - total + 0.5)
    return total / max(1, n), float(low), float(high), n


if __name__ == "__main__":
    main()
