"""Hidden answers of real tables: mean log score per answer of ours and of what people use.

A tenth of the cells is hidden at random, several times over. Probabilities are scored as intervals of width
0.01, counts and 0/1 answers exactly. Every choice (model, ridge, dispersion, settings) is made on cells that
are not hidden; of the plain and the tuned form of a baseline the one that turns out better stands against
ours. Standard errors are of paired differences, clustered by subject and by item, over all splits together.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import _torch_measure
import numpy as np
import pandas as pd
from _common import clock, print_result, shared_data
from scipy.special import logsumexp

import bayes_irsl as bi
from bayes_irsl.baselines.answers import LogitTable, additive_logit, item_mean, log_score, tuned
from bayes_irsl.diagnostics.held_out import crossed_mean

RIDGES = (0.01, 0.1, 0.3, 1.0, 3.0)
STRENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
DRAW_BLOCK = 50
BASELINES = ("additive_logit", "item_mean", "torch_measure")


def mmlu_pro() -> bi.Responses:
    """Right or wrong on 12,032 questions with up to 10 options, 29 models."""
    table = pd.read_parquet(shared_data("mmlu_pro", "responses_wide.parquet")).set_index("question_id")
    about = table[["category", "n_options"]].assign(chance=1 / table["n_options"])
    answers = table.drop(columns=["answer", "category", "src", "n_options"]).astype(float).T
    answers.columns = about.index = answers.columns.astype(str)
    return bi.Responses.from_wide(answers, items=about)


def digit_mat() -> bi.Responses:
    """Probability given to the right one of 8 completions of a digit matrix, 22 models x 1,216 problems."""
    rows = pd.read_parquet(shared_data("lm_task_demands", "digit_mat.parquet"))
    rows = rows.astype({"model": str, "problem_id": str, "problem_type": str})
    about = rows.drop_duplicates("problem_id").set_index("problem_id")[["problem_type"]]
    columns = {"subject": "model", "item": "problem_id", "answer": "p_correct"}
    return bi.Responses.from_long(rows[list(columns.values())], **columns, items=about.assign(chance=1 / 8))


def pythia() -> bi.Responses:
    """Right answers to 50 sums or products with a common operand, 42 checkpoints x 200 operands, 16 shots."""
    rows = pd.read_parquet(shared_data("pythia_term_frequency", "counts.parquet")).query("fewshot == 16")
    rows = rows.assign(
        subject=rows["model"].astype(str) + "@" + rows["checkpoint"].astype(str),
        item=rows["kind"].astype(str) + " " + rows["k"].astype(str),
        kind=rows["kind"].astype(str),
    )
    about = rows.drop_duplicates("item").set_index("item")[["kind"]].rename(columns={"kind": "category"})
    return bi.Responses.from_long(rows[["subject", "item", "c", "n"]], successes="c", trials="n", items=about)


@dataclass(frozen=True)
class Table:
    """One set: how it is read, the model that stands for ours, and the others that it was chosen among."""

    load: Callable[[], bi.Responses]
    chosen: dict
    others: tuple[dict, ...]


SETS = {
    "mmlu_pro": Table(
        mmlu_pro,
        {},
        (
            {"curve": "3pl"},
            {"abilities": "category", "dependence": "testlet"},
            {"abilities": "category"},
            {"curve": "3pl", "abilities": "category", "dependence": "testlet"},
        ),
    ),
    "digit_mat": Table(
        digit_mat,
        {"precision": "item"},
        (
            {},
            {"abilities": "problem_type", "dependence": "testlet"},
            {"abilities": "problem_type", "dependence": "testlet", "precision": "item"},
        ),
    ),
    "pythia": Table(
        pythia,
        {},
        (
            {"precision": "item"},
            {"abilities": "category"},
            {"abilities": "category", "precision": "item"},
            {"abilities": "category", "dependence": "testlet"},
        ),
    ),
}


def cells(responses: bi.Responses, kept: np.ndarray) -> bi.Responses:
    """The answers where ``kept`` holds, of the same subjects and items."""
    names = ("subject_index", "item_index", "answer", "trials")
    parts = {name: getattr(responses, name) for name in names}
    return replace(responses, **{name: part if part is None else part[kept] for name, part in parts.items()})


def ours(spec: bi.ItemResponse, train: bi.Responses, test: bi.Responses, seed: int, draws: int = 400) -> np.ndarray:
    """Log posterior predictive probability of each hidden answer: the mean of its probability over draws."""
    fit = bi.fit(spec, train, method="laplace", seed=seed)
    posterior = fit.tree["posterior"].to_dataset().stack(sample=("chain", "draw"))
    total = posterior.sizes["sample"]
    posterior = posterior.isel(sample=np.linspace(0, total - 1, min(draws, total)).round().astype(int))
    of = {name: posterior[name].transpose("sample", ...).to_numpy().astype(float) for name in posterior.data_vars}
    i, j = test.subject_index, test.item_index
    if of["theta"].ndim == 3:
        place = {label: d for d, label in enumerate(posterior["dimension"].to_numpy().astype(str))}
        dimension = np.array([place[str(label)] for label in test.items[spec.abilities]])
    scores = []
    for start in range(0, of["theta"].shape[0], DRAW_BLOCK):
        at = {name: values[start : start + DRAW_BLOCK] for name, values in of.items()}
        theta = at["theta"][:, i] if at["theta"].ndim == 2 else at["theta"][:, i, dimension[j]]
        eta = at["a"][:, j] * (theta - at["b"][:, j])
        if "c" in at:
            eta = np.logaddexp(np.log(at["c"][:, j]), eta) - np.log1p(-at["c"][:, j])
        log_phi = None
        if "phi" in at:
            log_phi = np.log(at["phi"][:, j] if at["phi"].ndim == 2 else at["phi"][:, None])
        scores.append(log_score(test, eta, log_phi))
    scores = np.concatenate(scores)
    return logsumexp(scores, axis=0) - np.log(len(scores))


def plain_and_tuned(train: bi.Responses, seed: int) -> dict[str, list[LogitTable]]:
    """The two baselines without torch, each as it comes and tuned on a tenth of the cells that it may see."""
    return {
        "additive_logit": [additive_logit(train), tuned(additive_logit, train, RIDGES, seed)],
        "item_mean": [item_mean(train), tuned(partial(item_mean, centre=None), train, STRENGTHS, seed)],
    }


def torch_settings(train: bi.Responses) -> list[dict]:
    """What is tried of torch_measure's 2PL: its defaults, then weight decays of about N(0, 1) priors."""
    decays = [0.0, 0.3 / train.n_obs, 3 / train.n_obs]
    settings = [{"model": "TwoPL", "weight_decay": decay} for decay in decays]
    if train.kind != "binary":
        settings += [{"model": "BetaTwoPL", "weight_decay": d, "phi": p} for d in decays for p in (3.0, 10.0, 30.0)]
    return settings


def torch_tables(train: bi.Responses, settings: list[dict]) -> list[LogitTable]:
    """torch_measure's 2PL for each of the settings, with the dispersion most likely for these cells."""
    answers, trials = train.dense()
    share = answers if trials is None else answers / np.where(trials > 0, trials, 1)
    inside = share if trials is None else (answers + 0.5) / (trials + 1)
    tables = []
    for model in ("TwoPL", "BetaTwoPL"):
        chosen = [setting for setting in settings if setting["model"] == model]
        if chosen:
            for got in _torch_measure.fit_all(share if model == "TwoPL" else inside, chosen):
                table = LogitTable(got["theta"], -got["a"] * got["b"], got["a"])
                tables.append(table.with_dispersion(train))
    return tables


def best_of_torch(rest: bi.Responses, aside: bi.Responses) -> tuple[dict, float | None]:
    """The settings, and the precision, that predict the cells set aside best."""
    settings = torch_settings(rest)
    tables = [table.with_dispersion(aside) for table in torch_tables(rest, settings)]
    best = int(np.argmax([table.log_score(aside).mean() for table in tables]))
    return settings[best], tables[best].log_phi


def in_folds(responses: bi.Responses) -> np.ndarray:
    """A fold of ten for every cell: split k hides fold k, and choices are made on folds never hidden."""
    return np.random.default_rng(0).permutation(responses.n_obs) % 10


def for_choices(responses: bi.Responses, splits: int) -> tuple[bi.Responses, bi.Responses]:
    """Cells to fit to and cells to predict while choosing, all of them hidden in no split."""
    fold = in_folds(responses)
    return cells(responses, (fold >= splits) & (fold < 9)), cells(responses, fold == 9)


def choose(name: str, splits: int) -> None:
    """Print how well each of the models that could stand for ours predicts the cells set aside."""
    table = SETS[name]
    rest, aside = for_choices(table.load(), splits)
    first = None
    for options in (table.chosen, *table.others):
        with clock() as spent:
            score = ours(bi.ItemResponse(**options), rest, aside, 0)
        first = score if first is None else first
        gain, error = crossed_mean(score - first, aside.subject_index, aside.item_index)
        print(
            f"{name} {options}: {score.mean():.4f}, {gain:+.4f} ({error:.4f}), {spent.cpu:.0f} CPU s",
            flush=True,
        )


def compare(name: str, splits: int, with_torch: bool) -> pd.DataFrame:
    """Scores of all methods on the hidden cells of one set: a row a method, with the gain of ours over it."""
    responses, spec = SETS[name].load(), bi.ItemResponse(**SETS[name].chosen)
    fold = in_folds(responses)
    scores: dict[str, list[np.ndarray]] = {}
    hidden = []
    if with_torch:
        setting, log_phi = best_of_torch(*for_choices(responses, splits))
        print(f"{name}: torch_measure predicts best with {setting}", flush=True)
    for split in range(splits):
        train, test = cells(responses, fold != split), cells(responses, fold == split)
        hidden.append(test)
        with clock() as spent:
            scores.setdefault("ours", []).append(ours(spec, train, test, split))
        tables = plain_and_tuned(train, split)
        if with_torch:
            plain = torch_settings(train)[:1]
            tables["torch_measure"] = torch_tables(train, [*plain, setting])
            tables["torch_measure"][1] = replace(tables["torch_measure"][1], log_phi=log_phi)
        for baseline, forms in tables.items():
            for form, table in zip(("plain", "tuned"), forms, strict=True):
                scores.setdefault(f"{baseline}, {form}", []).append(table.log_score(test))
        print(f"{name}, split {split + 1} of {splits}: ours took {spent.cpu:.0f} CPU s", flush=True)
    rows = np.concatenate([test.subject_index for test in hidden])
    columns = np.concatenate([test.item_index for test in hidden])
    mine = np.concatenate(scores["ours"])
    found = {}
    for method, parts in scores.items():
        theirs = np.concatenate(parts)
        score, score_error = crossed_mean(theirs, rows, columns)
        gain, error = crossed_mean(mine - theirs, rows, columns)
        found[method] = {"log_score": score, "se": score_error, "gain_of_ours": gain, "gain_se": error}
    return pd.DataFrame(found).T.rename_axis(f"{name} ({len(mine):,} hidden)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--splits", type=int, default=2, help="how many of ten folds are hidden, one after the other")
    parser.add_argument("--no-torch", action="store_true", help="leave torch_measure out")
    parser.add_argument("--choose", action="store_true", help="compare the models that could stand for ours, and stop")
    options = parser.parse_args()
    if options.choose:
        for name in options.sets:
            choose(name, options.splits)
        return
    with_torch = not options.no_torch and _torch_measure.available()
    if not with_torch:
        print("torch_measure skipped: install the [bench] extra, or set BENCH_TORCH_PYTHON to a Python with it")
    worst: dict[str, tuple[float | None, float | None]] = {}
    for name in options.sets:
        table = compare(name, options.splits, with_torch)
        print(table.round(5).to_string(), flush=True)
        for baseline in BASELINES:
            forms = table[table.index.str.startswith(baseline)]
            if len(forms):
                best = forms.loc[forms["log_score"].idxmax()]
                gain = (float(best["gain_of_ours"]), float(best["gain_se"]))
                worst[baseline] = min(worst.get(baseline, gain), gain)
    result = {}
    for baseline in BASELINES:
        result[f"gain_vs_{baseline}"], result[f"gain_vs_{baseline}_se"] = worst.get(baseline, (None, None))
    print_result(**result, splits=options.splits)


if __name__ == "__main__":
    main()
