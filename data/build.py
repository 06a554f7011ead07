"""Re-lay the source tables as the bundled ones: ``python data/build.py FOLDER_OF_SOURCES``.

The sources, their commits and what is changed are described in README.md beside this file.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
# The sizes were renamed in 2023, from parameters without embeddings to all of them.
PYTHIA_SIZES = {
    "125m": "160m",
    "350m": "410m",
    "800m": "1b",
    "1.3b": "1.4b",
    "2.7b": "2.8b",
    "6.7b": "6.9b",
    "13b": "12b",
}
MMLU_PRO_FAMILIES = {
    "DeepSeek": "DeepSeek-V2",
    "Llama-2": "Llama-2",
    "Meta-Llama-3_1": "Llama-3.1",
    "Meta-Llama-3-": "Llama-3",
    "Mistral": "Mistral",
    "mathstral": "Mistral",
    "Mixtral": "Mixtral",
    "Phi-3": "Phi-3",
    "Qwen1.5": "Qwen1.5",
    "Yi": "Yi",
    "c4ai": "Command-R",
    "gemini-1.5": "Gemini-1.5",
    "gemma": "Gemma",
    "jamba": "Jamba-1.5",
}
SLOTH_BENCHMARKS = {
    "IFEval": "leaderboard v2",
    "BBH": "leaderboard v2",
    "MATH Lvl 5": "leaderboard v2",
    "GPQA": "leaderboard v2",
    "MUSR": "leaderboard v2",
    "MMLU-PRO": "leaderboard v2",
    "ARC": "leaderboard v1",
    "HellaSwag": "leaderboard v1",
    "MMLU": "leaderboard v1",
    "TruthfulQA": "leaderboard v1",
    "Winogrande": "leaderboard v1",
    "GSM8K": "leaderboard v1",
    "XWinograd": "other",
    "HumanEval": "other",
}


def write(table: pd.DataFrame, name: str) -> None:
    for column in table.select_dtypes(include=["object", "string"]):
        table[column] = table[column].astype("category")
    path = HERE / name
    table.to_parquet(path, index=False, compression="zstd", compression_level=19)
    print(f"{name}: {len(table):,} rows, {path.stat().st_size:,} bytes")


def pythia(source: Path) -> None:
    rows = pd.read_parquet(source / "pythia_term_frequency" / "counts.parquet")
    size = rows["model"].astype(str).str.extract(r"pythia-(.+)-deduped")[0].map(PYTHIA_SIZES)
    rows["run"] = "pythia-" + size + "-deduped"
    rows["subject"] = rows["run"] + "/step" + rows["checkpoint"].astype(str)
    rows = rows.assign(benchmark=rows["kind"].astype(str).str.rsplit("_", n=1).str[1])
    rows = rows.sort_values(["params", "checkpoint", "fewshot", "benchmark", "k"], ignore_index=True)
    subjects = rows.rename(columns={"checkpoint": "step", "flops": "compute"}).drop_duplicates("subject")
    write(
        subjects[["subject", "run", "step", "params", "tokens", "compute"]].copy(),
        "pythia_arithmetic_subjects.parquet",
    )
    answers = rows[["subject", "benchmark"]].copy()
    answers["first_operand"] = rows["k"].astype(np.int8)
    answers["shots"] = rows["fewshot"].astype(np.int8)
    answers["successes"] = rows["c"].astype(np.int8)
    write(answers, "pythia_arithmetic.parquet")


def aime(source: Path) -> None:
    rows = pd.read_csv(source / "matharena_aime2025_I" / "counts.csv")
    out = rows[["model", "problem", "c"]].set_axis(["subject", "problem", "successes"], axis=1)
    write(out.astype({"problem": np.int8, "successes": np.int8}), "aime_2025.parquet")


def mmlu_pro(source: Path) -> None:
    folder = source / "mmlu_pro"
    models = pd.read_csv(folder / "models.csv")
    wide = pd.read_parquet(folder / "responses_wide.parquet")
    failed = pd.read_parquet(folder / "extraction_failed_wide.parquet")
    assert (wide["question_id"] == failed["question_id"]).all()
    out = pd.DataFrame({"item": wide["question_id"].astype(np.int16)})
    out["category"], out["source"] = wide["category"], wide["src"]
    out["n_options"] = wide["n_options"].astype(np.int8)
    for name in models["model"]:
        state = wide[name].fillna(3).astype(np.int8)  # 0 wrong, 1 right, 2 unparsed, 3 not asked
        out[name] = state.mask(failed[name] & wide[name].notna(), 2).astype(np.int8)
    write(out, "mmlu_pro.parquet")
    subjects = pd.DataFrame({"subject": models["model"]})
    subjects["family"] = [
        next(family for start, family in MMLU_PRO_FAMILIES.items() if name.startswith(start))
        for name in models["model"]
    ]
    subjects["tuning"] = models["kind"]
    subjects["date"] = models["release_date"]
    subjects["params"] = (models["params_b"] * 1e9).round()
    subjects["tokens"] = (models["tokens_t"] * 1e12).round()
    subjects["compute"] = models["zflops_6nd"] * 1e21
    write(subjects, "mmlu_pro_subjects.parquet")


def sloth(source: Path) -> None:
    rows = pd.read_csv(source / "sloth_obsscaling" / "sloth_data_v2.csv")
    models = pd.DataFrame(
        {
            "subject": rows["Model"],
            "family": rows["Family"],
            "tuned_family": rows["Family2"],
            "instruct": rows["Instruct"],
            "date": rows["date"],
            "params": (rows["#Params (B)"] * 1e9).round(),
            "tokens": (rows["Pretraining Data Size (T)"] * 1e12).round(),
            "compute": rows["FLOPs (1E21)"] * 1e21,
        }
    )
    long = rows.melt("Model", list(SLOTH_BENCHMARKS), "benchmark", "score").dropna(subset="score")
    long["suite"] = long["benchmark"].map(SLOTH_BENCHMARKS)
    out = models.merge(long.rename(columns={"Model": "subject"}), on="subject", validate="1:m")
    write(out[[*models.columns, "suite", "benchmark", "score"]], "sloth.parquet")


def epoch(source: Path) -> None:
    rows = pd.read_csv(source / "epoch" / "benchmarks_runs_joined.csv")
    best = rows["Scores"].str.extractall(r"(?P<scorer>\w+):(?P<value>[\d.]+)±(?P<se>[\d.]+)")
    best = best.astype({"value": float, "se": float}).reset_index()
    best = best.loc[best.groupby("level_0")["value"].idxmax()].set_index("level_0")
    started = pd.to_datetime(rows["started_at"], format="%d %B %Y %I:%M%p")
    out = pd.DataFrame(
        {
            "subject": rows["model"],
            "base_model": rows["epoch_model"],
            "date": rows["Version release date"],
            "compute": rows["training_compute_flop"],
            "benchmark": rows["task"],
            "version": rows["task version"],
            "evaluated": started.dt.strftime("%Y-%m-%d"),
            "scorer": best["scorer"],
            "score": rows["Best score (across scorers)"],
            "score_se": best["se"],
        }
    )
    assert (out["score"] - best["value"]).abs().max() <= 0.0051
    write(out, "epoch.parquet")


if __name__ == "__main__":
    for build in (pythia, aime, mmlu_pro, sloth, epoch):
        build(Path(sys.argv[1]))
