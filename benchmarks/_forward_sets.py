"""The real sets of the forward validation, as splits of Responses: what is fitted, what lies beyond."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import bayes_irsl as bi
from bayes_irsl.forecasts.evaluation import forward_splits
from bayes_irsl.forecasts.scores import Transform

Split = tuple[str, bi.Responses, bi.Responses]
CHANCE = {
    "arc_": 0.25, "boolq": 0.5, "csqa": 0.2, "hellaswag": 0.25, "logiqa": 0.25, "mmlu": 0.25, "openbookqa": 0.25,
    "piqa": 0.5, "sciq": 0.25, "socialiqa": 1 / 3, "winogrande": 0.5,
}  # fmt: skip
# Zero-shot tasks whose scores move with scale, and every other checkpoint: neighbours say the same thing.
PYTHIA_TASKS = ("arc_easy", "arc_challenge", "piqa", "sciq", "lambada_openai", "winogrande", "logiqa")
PYTHIA_STEPS = (512, 3000, 13000, 33000, 63000, 103000, 143000)
LADDER_SIZES = {"190M": 190e6, "370M": 370e6, "760M": 760e6, "1B": 1.3e9, "3B": 3.2e9}


class Set(NamedTuple):
    """One set: name, unit of its score, splits by series, and the transform of scores before they are scored."""

    name: str
    unit: str
    series: list[tuple[str, list[Split]]]
    transform: Transform | None = None


def scores(table: pd.DataFrame, benchmark: str, facts: list[str]) -> bi.Responses:
    """Scores of one benchmark: columns subject and successes with trials, or score, and the subjects' facts."""
    chance = next((c for key, c in CHANCE.items() if key in benchmark), 0.0)
    items = pd.DataFrame({"benchmark": [benchmark], "chance": [chance]}, index=pd.Index([benchmark], name="item"))
    subjects = table.set_index("subject")[facts]
    columns = {"successes": "successes", "trials": "trials"} if "trials" in table else {"answer": "score"}
    return bi.Responses.from_long(table.assign(item=benchmark), subjects=subjects, items=items, **columns)


def term_frequency(data: Path) -> Set:
    """Pythia arithmetic with 0 to 16 examples: counts of 200 items, 42 checkpoints; benchmark = operation."""
    series = []
    for shots in (0, 2, 4, 8, 16):
        responses = bi.load_dataset("pythia-arithmetic", shots=shots)
        series.append((f"{shots} shots", forward_splits(responses)))
    return Set("pythia_term_frequency", "accuracy", series)


def gsm8k_grid(data: Path) -> Set:
    """pass@1 on GSM8K of 81 Pythia checkpoints in decades; trials are what the scatter of the mean over items gives."""
    table = pd.read_parquet(data / "pythia_monkeys" / "gsm8k_grid_counts.parquet")
    share = (table["c"] + 0.5) / (table["n"] + 1)
    table = table.assign(p=table["c"] / table["n"], v=share * (1 - share) / table["n"])
    by = table.groupby(["model", "params", "tokens"], as_index=False).agg(
        p=("p", "mean"), v=("v", "sum"), m=("p", "size")
    )
    variance = by["v"] / by["m"] ** 2
    trials = np.clip(np.round(by["p"].clip(1e-7) * (1 - by["p"]) / variance), 10, 2_000_000_000).astype(int)
    by = by.assign(
        subject=by["model"], trials=trials, successes=np.round(by["p"] * trials).astype(int),
        run=by["params"].map("{:.0f}".format), compute=6.0 * by["params"] * by["tokens"],
    )  # fmt: skip
    responses = scores(by.astype({"params": float, "tokens": float}), "gsm8k", ["run", "params", "tokens", "compute"])
    return Set("pythia_monkeys_gsm8k", "log10 pass@1", [("gsm8k", forward_splits(responses))], decades)


def decades(p: np.ndarray) -> np.ndarray:
    return np.log10(np.maximum(p, 1e-7))


def pythia_tasks(data: Path) -> Set:
    """Zero-shot accuracies of the deduplicated Pythia runs."""
    table = pd.read_parquet(data / "pythia_task_level" / "task_accuracy_long.parquet").astype(
        {"model": str, "task": str}
    )
    keep = (table["shots"] == "zero-shot") & table["deduped"].astype(bool) & table["step"].isin(PYTHIA_STEPS)
    table = table[keep & ~table["model"].str.contains("bs|small")]
    series = []
    for task in PYTHIA_TASKS:
        part = table[table["task"] == task]
        trials = int(part["n_items"].median())
        part = part.assign(
            subject=part["model"] + "/" + part["step"].astype(str), run=part["model"], trials=trials,
            successes=np.round(part["acc"] * trials).astype(int), compute=part["flops"].astype(float),
        )  # fmt: skip
        part = part.astype({"params": float, "tokens": float})
        series.append((task, forward_splits(scores(part, task, ["run", "params", "tokens", "compute"]))))
    return Set("pythia_task_level", "accuracy", series)


def olmo_ladder(data: Path) -> Set:
    """Final checkpoints of 25 runs, 20 tasks, accuracy and mean probability of the right answer."""
    table = pd.read_parquet(data / "olmo_ladder_task_level" / "ladder_long.parquet")
    table = table[~table["rerun"]].astype({"size": str, "task": str, "metric": str})
    last = table.sort_values("step").groupby(["size", "chinchilla_mult", "task", "metric"], as_index=False).tail(1)
    run = ["size", "chinchilla_mult"]
    loss = last[last["metric"] == "c4_loss"].set_index(run)["value"].astype(float).rename("loss")
    last = last[last["metric"] != "c4_loss"].join(loss, on=run)
    series = []
    for task, part in last.groupby("task"):
        part = part.assign(
            subject=part["size"] + "/" + part["chinchilla_mult"].astype(str) + "xC",
            params=part["size"].map(LADDER_SIZES), tokens=part["total_tokens"].astype(float),
            score=part["value"].astype(float),
        )  # fmt: skip
        part = part.assign(compute=6 * part["params"] * part["tokens"], run=part["subject"])
        facts = ["run", "params", "tokens", "compute", "loss"]
        series.append((str(task), forward_splits(scores(part, str(task), facts))))
    return Set("olmo_ladder", "accuracy", series)


def digit_matrices(data: Path) -> Set:
    """Mean probability of the right answer to digit matrices, 21 models of six families; cuts in compute."""
    answers = pd.read_parquet(data / "lm_task_demands" / "digit_mat.parquet")
    models = pd.read_csv(data / "lm_task_demands" / "models.csv").dropna(subset=["flops"])
    mean = answers.groupby("model")["p_correct"].mean().rename("score")
    table = models.join(mean, on="model").rename(columns={"model": "subject", "base": "run", "flops": "compute"})
    table["family"] = table["run"].str.extract(r"^([A-Za-z]+)")[0]
    responses = scores(table, "digit_mat", ["run", "family", "params", "tokens", "compute"])
    splits = [s for s in forward_splits(responses, by="compute", least=8) if s[2].n_subjects >= 4][::3]
    return Set("lm_task_demands", "p(correct)", [("digit_mat", splits)])


def mmlu_pro(data: Path) -> Set:
    """Accuracy on MMLU-Pro of the models whose compute is known; cuts in compute."""
    models = pd.read_csv(data / "mmlu_pro" / "models.csv").dropna(subset=["zflops_6nd"])
    table = pd.DataFrame(
        {
            "subject": models["model"],
            "trials": models["rows"].astype(int),
            "successes": np.round(models["acc"] * models["rows"]).astype(int),
            "params": models["params_b"] * 1e9,
            "tokens": models["tokens_t"] * 1e12,
            "compute": models["zflops_6nd"] * 1e21,
            "family": models["model"].str.extract(r"^(?:Meta-)?([A-Za-z]+)")[0],
            "run": models["model"],
        }
    )
    responses = scores(table, "mmlu_pro", ["run", "family", "params", "tokens", "compute"])
    splits = [s for s in forward_splits(responses, by="compute", least=6) if s[2].n_subjects >= 3]
    return Set("mmlu_pro", "accuracy", [("mmlu_pro", splits)])


SETS = (term_frequency, gsm8k_grid, pythia_tasks, olmo_ladder, digit_matrices, mmlu_pro)


def load(data: Path, names: set[str] | None = None) -> Iterator[Set]:
    """The sets, all or those whose functions are named."""
    for make in SETS:
        if names is None or make.__name__ in names:
            yield make(data)
