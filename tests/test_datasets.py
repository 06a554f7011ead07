"""The bundled tables: what their description promises, and the sources they were made from."""

import hashlib
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from bayes_irsl.datasets import SHOTS, list_datasets, load_dataset
from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses


@pytest.mark.parametrize("name", ["pythia-arithmetic", "aime-2025", "mmlu-pro", "sloth", "epoch"])
def test_the_list_says_what_is_loaded(name):
    row = list_datasets().loc[name]
    data = load_dataset(name)
    if isinstance(data, Responses):
        assert (data.n_subjects, data.n_items, data.n_obs) == (row["subjects"], row["items"], row["n_obs"])
    else:
        assert (data["subject"].nunique(), len(data)) == (row["subjects"], row["n_obs"])
        assert data["score"].between(0, 1).all()
        assert not data[["subject", "benchmark", "score"]].isna().any(axis=None)
        assert (data["compute"].dropna() > 1e18).all()
        assert data["date"].dropna().between("2019-01-01", "2026-01-01").all()


def test_bundle_is_small_and_described():
    folder = files("bayes_irsl.data")
    tables = [f for f in folder.iterdir() if f.name.endswith(".parquet")]
    assert sum(len(f.read_bytes()) for f in tables) < 600_000
    text = (folder / "README.md").read_text()
    for table in tables:
        assert table.name in text
    for name, row in list_datasets().iterrows():
        assert f"## {name}" in text
        assert row["licence"] in text


def test_unknown_names_and_options():
    with pytest.raises(InputError, match=r"no dataset 'mmlu'\. Did you mean 'mmlu-pro'"):
        load_dataset("mmlu")
    with pytest.raises(InputError, match="dataset 'aime-2025' takes no options; got 'shots'"):
        load_dataset("aime-2025", shots=3)
    with pytest.raises(InputError, match="takes unparsed; got 'shots'"):
        load_dataset("mmlu-pro", shots=3)
    with pytest.raises(InputError, match="shots is one of 0, 2, 4, 8, 16; got 5"):
        load_dataset("pythia-arithmetic", shots=5)
    with pytest.raises(InputError, match="unparsed is 'missing' or 'wrong'"):
        load_dataset("mmlu-pro", unparsed="guess")


def test_pythia_arithmetic_counts():
    responses = load_dataset("pythia-arithmetic")
    assert responses.is_complete
    assert responses.kind == "count"
    assert set(responses.trials) == {50}
    assert (responses.answer == 0).mean() == pytest.approx(0.37, abs=0.005)
    assert responses.constant_items() == []
    subjects = responses.subjects
    assert subjects["run"].nunique() == 7
    assert subjects["compute"].min() == pytest.approx(2.66e19, rel=0.01)
    assert subjects["compute"].max() == pytest.approx(2.13e22, rel=0.01)
    assert subjects.index[0] == "pythia-160m-deduped/step13000"
    assert responses.items["benchmark"].value_counts().to_dict() == {"addition": 100, "multiplication": 100}
    assert load_dataset("pythia-arithmetic", shots=0).rate.mean() == pytest.approx(0.02, abs=0.005)


def test_aime_2025_counts():
    responses = load_dataset("aime-2025")
    assert responses.is_complete
    assert set(responses.trials) == {4}
    assert responses.constant_items() == ["AIME-2025-I/15"]


def test_mmlu_pro_unparsed_answers():
    missing, wrong = load_dataset("mmlu-pro"), load_dataset("mmlu-pro", unparsed="wrong")
    assert missing.kind == wrong.kind == "binary"
    assert 29 * 12_032 - wrong.n_obs == 1_713
    assert wrong.n_obs - missing.n_obs == 32_697
    assert missing.answer.sum() == wrong.answer.sum()
    assert "32,697" in missing.notes[0]
    order, starts = wrong.by_item()
    right = np.add.reduceat(wrong.answer[order], starts[:-1])
    assert (right == 0).sum() == 640
    assert (right == np.diff(starts)).sum() == 236
    items = missing.items
    np.testing.assert_allclose(items["chance"], 1 / items["n_options"])
    assert items["n_options"].between(2, 10).all()
    assert items["category"].nunique() == 14
    subjects = missing.subjects
    assert subjects["compute"].notna().sum() == 17
    assert subjects["family"].notna().all()
    llama = wrong.select(subjects=["Meta-Llama-3-8B"])
    assert llama.answer.mean() == pytest.approx(0.341755, abs=1e-6)


def test_sloth_and_epoch_tables():
    sloth = load_dataset("sloth")
    assert not sloth.duplicated(["subject", "benchmark"]).any()
    known = sloth.drop_duplicates("subject")
    assert known["compute"].notna().sum() == 175
    np.testing.assert_allclose(known["compute"], 6 * known["params"] * known["tokens"], rtol=1e-9)
    assert sloth["benchmark"].nunique() == 14
    epoch = load_dataset("epoch")
    assert epoch.duplicated(["subject", "benchmark"]).sum() == 2
    assert epoch["compute"].notna().sum() == 189
    assert epoch["date"].isna().sum() == 3
    assert epoch["score_se"].between(0, 0.2).all()


def test_pythia_equals_its_source(shared):
    source = pd.read_parquet(shared / "data" / "pythia_term_frequency" / "counts.parquet")
    for shots in SHOTS:
        responses = load_dataset("pythia-arithmetic", shots=shots)
        rows = source[source["fewshot"] == shots]
        by_compute = rows.groupby("flops")["c"].agg(["sum", "count"])
        ours = pd.Series(responses.answer).groupby(responses.subjects["compute"].to_numpy()[responses.subject_index])
        np.testing.assert_array_equal(by_compute["sum"], ours.sum())
        np.testing.assert_array_equal(by_compute["count"], ours.count())
        kind = rows["kind"].astype(str).str.rsplit("_", n=1).str[1] + "/" + rows["k"].astype(str)
        by_item = rows.groupby(kind)["c"].sum()
        order, starts = responses.by_item()
        totals = pd.Series(np.add.reduceat(responses.answer[order], starts[:-1]), index=responses.items.index)
        np.testing.assert_array_equal(totals[by_item.index], by_item)


def test_aime_equals_its_source(shared):
    source = pd.read_csv(shared / "data" / "matharena_aime2025_I" / "counts.csv")
    ours = pd.DataFrame(load_dataset("aime-2025").dense()[0], index=load_dataset("aime-2025").subjects.index)
    theirs = source.pivot(index="model", columns="problem", values="c")
    np.testing.assert_array_equal(ours.loc[theirs.index], theirs)


def test_mmlu_pro_equals_its_source(shared):
    folder = shared / "data" / "mmlu_pro"
    source = pd.read_parquet(folder / "responses_wide.parquet").set_index("question_id")
    failed = pd.read_parquet(folder / "extraction_failed_wide.parquet").set_index("question_id")
    wrong, missing = load_dataset("mmlu-pro", unparsed="wrong"), load_dataset("mmlu-pro")
    names = list(wrong.subjects.index)
    table = source[names].to_numpy(dtype=np.float32, na_value=np.nan).T
    np.testing.assert_array_equal(wrong.dense()[0], table)
    table[failed[names].to_numpy().T] = np.nan
    np.testing.assert_array_equal(missing.dense()[0], table)


def test_score_tables_equal_their_sources(shared):
    sloth = load_dataset("sloth").pivot(index="subject", columns="benchmark", values="score")
    source = pd.read_csv(shared / "data" / "sloth_obsscaling" / "sloth_data_v2.csv").set_index("Model")
    pd.testing.assert_frame_equal(sloth, source.loc[sloth.index, sloth.columns], check_names=False)
    epoch = load_dataset("epoch")
    runs = pd.read_csv(shared / "data" / "epoch" / "benchmarks_runs_joined.csv")
    np.testing.assert_array_equal(epoch["score"], runs["Best score (across scorers)"])
    np.testing.assert_array_equal(epoch["compute"], runs["training_compute_flop"])


def test_no_table_is_a_copy_of_a_source(shared):
    copies = {hashlib.sha256(p.read_bytes()).digest() for p in (shared / "data").rglob("*") if p.is_file()}
    for table in files("bayes_irsl.data").iterdir():
        if table.name.endswith((".parquet", ".csv")):
            assert hashlib.sha256(table.read_bytes()).digest() not in copies
