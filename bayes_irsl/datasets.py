"""The bundled tables: answers and scores of real language models. Sources and licences: data/README.md."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files

import numpy as np
import pandas as pd

from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses

SHOTS = (0, 2, 4, 8, 16)
_UNPARSED, _NOT_ASKED = 2, 3


@dataclass(frozen=True)
class _Dataset:
    load: Callable[..., Responses | pd.DataFrame]
    what: str
    subjects: int
    items: int | None
    n_obs: int
    licence: str
    source: str


def load_dataset(name: str, **options: object) -> Responses | pd.DataFrame:
    """A bundled set: answers to items as Responses, scores on benchmarks as a tidy DataFrame.

    Parameters
    ----------
    name : str
        One of :func:`list_datasets`.
    **options
        "pythia-arithmetic": ``shots=16``, one of 0, 2, 4, 8, 16.
        "mmlu-pro": ``unparsed="missing"``, or "wrong" for answers from which no letter could be read.

    Returns
    -------
    Responses ("pythia-arithmetic", "aime-2025", "mmlu-pro") or DataFrame ("sloth", "epoch")

    Raises
    ------
    InputError
        An unknown name or option; the message lists the valid ones.
    """
    if name not in _DATASETS:
        near = difflib.get_close_matches(str(name), _DATASETS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(f"no dataset {name!r}.{hint} There are {', '.join(_DATASETS)}.")
    load = _DATASETS[name].load
    valid = list(inspect.signature(load).parameters)
    for option in options:
        if option not in valid:
            takes = f"takes {', '.join(valid)}" if valid else "takes no options"
            raise InputError(f"dataset {name!r} {takes}; got {option!r}.")
    return load(**options)


def list_datasets() -> pd.DataFrame:
    """What is bundled: one row a set, with its size (as loaded without options), licence and source."""
    rows = [(name, d.what, d.subjects, d.items, d.n_obs, d.licence, d.source) for name, d in _DATASETS.items()]
    columns = ["name", "what", "subjects", "items", "n_obs", "licence", "source"]
    return pd.DataFrame(rows, columns=columns).astype({"items": "Int64"}).set_index("name")


def _table(name: str) -> pd.DataFrame:
    with (files("bayes_irsl.data") / name).open("rb") as handle:
        table = pd.read_parquet(handle)
    for column in table.select_dtypes("category"):
        table[column] = table[column].astype(table[column].cat.categories.dtype)
    for column in table.columns.intersection(["date", "evaluated"]):
        table[column] = pd.to_datetime(table[column], format="%Y-%m-%d")
    return table


def _pythia_arithmetic(shots: int = 16) -> Responses:
    if shots not in SHOTS:
        raise InputError(f"shots is one of {', '.join(map(str, SHOTS))}; got {shots!r}.")
    answers = _table("pythia_arithmetic.parquet")
    answers = answers[answers["shots"] == shots].drop(columns="shots")
    answers["item"] = answers["benchmark"] + "/" + answers["first_operand"].astype(str)
    items = answers[["item", "benchmark", "first_operand"]].drop_duplicates("item")
    responses = Responses.from_long(
        answers[["subject", "item", "successes"]],
        successes="successes",
        trials=50,
        subjects=_table("pythia_arithmetic_subjects.parquet"),
        items=items,
    )
    note = (
        f"Pythia arithmetic, {shots} shots: an item is a first operand, its 50 trials are the second "
        "operands 1 to 50, so they differ among themselves (expect overdispersion)."
    )
    return _noted(responses, note)


def _aime_2025() -> Responses:
    answers = _table("aime_2025.parquet")
    answers["item"] = "AIME-2025-I/" + answers["problem"].astype(str)
    answers["benchmark"] = "AIME 2025 I"
    return Responses.from_long(answers, successes="successes", trials=4)


def _mmlu_pro(unparsed: str = "missing") -> Responses:
    if unparsed not in ("missing", "wrong"):
        raise InputError(f"unparsed is 'missing' or 'wrong'; got {unparsed!r}.")
    table = _table("mmlu_pro.parquet").set_index("item")
    subjects = _table("mmlu_pro_subjects.parquet").set_index("subject")
    state = table[list(subjects.index)].to_numpy().T
    answers = np.where(state == 1, np.float32(1), np.float32(0))
    answers[state == _NOT_ASKED] = np.nan
    if unparsed == "missing":
        answers[state == _UNPARSED] = np.nan
    items = table[["category", "source", "n_options"]].assign(benchmark="MMLU-Pro", chance=1 / table["n_options"])
    responses = Responses.from_wide(answers, subjects=subjects, items=items)
    n_unparsed, n_unasked = int((state == _UNPARSED).sum()), int((state == _NOT_ASKED).sum())
    note = (
        f"MMLU-Pro: {n_unparsed:,} answers without a readable letter are {unparsed} (unparsed={unparsed!r}), "
        f"{n_unasked:,} were not asked. For Llama-3.1 and Mathstral such answers had been replaced by random "
        "letters, and those stay."
    )
    return _noted(responses, note)


def _sloth() -> pd.DataFrame:
    return _table("sloth.parquet")


def _epoch() -> pd.DataFrame:
    return _table("epoch.parquet")


def _noted(responses: Responses, note: str) -> Responses:
    return replace(responses, notes=(note, *responses.notes))


_DATASETS = {
    "pythia-arithmetic": _Dataset(
        _pythia_arithmetic,
        "Pythia checkpoints adding and multiplying: right answers of 50, training compute known",
        42,
        200,
        8_400,
        "Apache-2.0",
        "EleutherAI/pythia",
    ),
    "aime-2025": _Dataset(
        _aime_2025,
        "AIME 2025 I, 15 problems: right answers of 4 samples",
        16,
        15,
        240,
        "MIT",
        "eth-sri/matharena.ai",
    ),
    "mmlu-pro": _Dataset(
        _mmlu_pro,
        "MMLU-Pro, up to 10 options: right or wrong, unreadable answers missing",
        29,
        12_032,
        314_518,
        "Apache-2.0",
        "TIGER-AI-Lab/MMLU-Pro",
    ),
    "sloth": _Dataset(
        _sloth,
        "models with parameters, tokens, compute, dates and their scores on 14 benchmarks",
        188,
        None,
        1_801,
        "MIT",
        "felipemaiapolo/sloth",
    ),
    "epoch": _Dataset(
        _epoch,
        "benchmark runs of frontier models: score, standard error, release date, compute where known",
        147,
        None,
        541,
        "CC BY 4.0",
        "Epoch AI, epoch-research/benchmark-stitching",
    ),
}
