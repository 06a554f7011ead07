"""Tables in files and in memory: what is read, and what is refused by name."""

import gzip

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayes_irsl.errors import InputError
from bayes_irsl.readers.table import read_table
from bayes_irsl.responses import Responses

LONG = pd.DataFrame(
    {
        "subject": ["m1", "m1", "m2"],
        "item": ["q1", "q2", "q1"],
        "answer": [1.0, 0.0, np.nan],
        "family": ["x", "x", "y"],
    }
)


def write(frame: pd.DataFrame, path):
    name = path.name
    if ".csv" in name:
        frame.to_csv(path, index=False)
    elif ".tsv" in name:
        frame.to_csv(path, index=False, sep="\t")
    elif ".parquet" in name:
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize(
    "name", ["a.csv", "a.csv.gz", "a.tsv", "a.CSV", "a.parquet", "a.jsonl", "a.jsonl.gz", "v1.2.csv"]
)
def test_every_format_reads_the_same(tmp_path, name):
    path = tmp_path / name
    if name == "a.CSV":
        LONG.to_csv(path, index=False)
    else:
        write(LONG, path)
    expected = Responses.from_long(LONG)
    for source in (path, str(path)):
        got = read_table(source)
        assert got.data_hash == expected.data_hash
        assert got.subjects["family"].tolist() == ["x", "y"]


def test_columns_of_other_names(tmp_path):
    frame = LONG.rename(columns={"subject": "model", "item": "doc_id", "answer": "acc"}).assign(flops=1e21)
    path = write(frame, tmp_path / "a.csv")
    responses = read_table(path, subject="model", item="doc_id", answer="acc", compute="flops")
    assert responses.subjects["compute"].tolist() == [1e21, 1e21]
    with pytest.raises(InputError, match=r"no column 'subject', 'item'; its columns are 'model', 'doc_id'"):
        read_table(path)
    with pytest.raises(InputError, match="unknown argument 'flops'"):
        read_table(path, subject="model", item="doc_id", answer="acc", flops="flops")


def test_labels_in_text_files_stay_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("subject,item,answer\nm,007,1\nm,7,0\n")
    assert list(read_table(path).items.index) == ["007", "7"]


def test_codes_in_text_files(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("subject,item,answer\nm,q1,1\nm,q2,timeout\nm,q3,-1\n")
    with pytest.raises(InputError, match=r"row 1, column 'answer' \(subject 'm', item 'q2'\): 'timeout' is text"):
        read_table(path)
    assert read_table(path, missing_codes=("timeout", -1)).n_obs == 1
    assert read_table(path, missing_codes=("timeout", -1), missing_as="wrong").answer.tolist() == [1, 0, 0]


def test_counts_and_repeats(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("subject\titem\tc\tn\nm\tq\t3\t4\nm\tq\t1\t2\n")
    with pytest.raises(InputError, match="repeats"):
        read_table(path, successes="c", trials="n")
    pooled = read_table(path, successes="c", trials="n", duplicates="sum")
    assert (pooled.answer.tolist(), pooled.trials.tolist()) == ([4], [6])


def test_data_01_one_row_a_filter_is_no_repeat(tmp_path):
    """DATA-01: four questions, logged once per filter: the reader refuses and names the column; pooled it is 0.625."""
    path = tmp_path / "samples.jsonl"
    scores = {"strict": [1, 0, 0, 1], "flexible": [1, 1, 0, 1]}
    rows = [
        {"doc_id": doc, "filter": name, "acc": score}
        for name, column in scores.items()
        for doc, score in enumerate(column)
    ]
    write(pd.DataFrame(rows).assign(model="m"), path)
    columns = {"subject": "model", "item": "doc_id", "answer": "acc"}
    with pytest.raises(InputError, match=r"repeats in all: 4; they differ in column 'filter'\. .* keep the rows"):
        read_table(path, **columns)
    logged = pd.read_json(path, lines=True)
    for name, mean in (("strict", 0.5), ("flexible", 0.75)):
        responses = read_table(logged[logged["filter"] == name], **columns)
        assert responses.dense()[0].shape == (1, 4)
        assert responses.answer.mean() == mean
    pooled = read_table(path, **columns, duplicates="mean")
    assert pooled.answer.mean() == 0.625
    assert any("they differ in column 'filter'" in note for note in pooled.notes)
    # a true repeat of one model, question and filter is refused as well
    with pytest.raises(InputError, match="repeats in all: 1"):
        read_table(pd.concat([logged, logged.head(1)])[logged.columns].query("filter == 'strict'"), **columns)


def test_data_02_trials_perturbed_copies_and_empty_rows():
    """DATA-02: trials 1, 0, 1, a perturbed copy 0 and an empty row: 2 of 3 without the copy; not 2 of 4 nor 2 of 5."""
    rows = pd.DataFrame(
        {
            "subject": "m",
            "item": "id7",
            "trial": [0, 1, 2, 0, 3],
            "perturbation": [None, None, None, "typos", None],
            "answer": [1, 0, 1, 0, np.nan],
        }
    )
    rows["tokens_out"] = [np.array([1, 2])] * 5
    with pytest.raises(InputError, match="repeats in all: 3; they differ in column 'trial', 'perturbation'\\."):
        read_table(rows)
    responses = read_table(rows[rows["perturbation"].isna()], duplicates="sum")
    assert (responses.answer.tolist(), responses.trials.tolist()) == ([2], [3])
    assert responses.rate[0] == pytest.approx(0.667, abs=5e-4)
    assert any("1 of 4 answers are missing and left out" in note for note in responses.notes)
    one = read_table(rows[rows["perturbation"].isna() & (rows["trial"] == 0)])
    assert (one.answer.tolist(), one.kind) == ([1], "binary")


def test_wide_file(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("model,fam,q1,q2\nm1,x,1,0\nm2,y,,1\n")
    responses = read_table(path, layout="wide", subject="model", family="fam")
    assert list(responses.subjects.index) == ["m1", "m2"]
    assert list(responses.items.index) == ["q1", "q2"]
    assert responses.subjects["family"].tolist() == ["x", "y"]
    assert responses.n_obs == 3
    with pytest.raises(InputError, match=r"row 'm1', column 'fam': 'x' is text"):
        read_table(path, layout="wide", subject="model")
    with pytest.raises(InputError, match="no column 'subject'"):
        read_table(path, layout="wide")
    with pytest.raises(InputError, match="'answer' goes with a table that has one row an answer"):
        read_table(path, layout="wide", subject="model", answer="q1")
    with pytest.raises(InputError, match="not by both"):
        read_table(path, layout="wide", subject="model", family="fam", subjects=["m1", "m2"])
    counts = read_table(path, layout="wide", subject=["model", "fam"], trials=3)
    assert list(counts.subjects.index) == ["m1/x", "m2/y"]
    assert counts.kind == "count"


def test_a_column_named_twice_is_refused(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("subject,q1,q1\nm1,1,0\n")
    with pytest.raises(InputError, match="column 'q1' more than once"):
        read_table(path, layout="wide")


def test_frames_and_arrays():
    assert read_table(LONG).n_obs == 2
    assert read_table(LONG.set_index(["subject", "item"])).n_obs == 2
    wide = pd.DataFrame([[1, 0]], index=["m"], columns=["q1", "q2"])
    assert read_table(wide, layout="wide").n_items == 2
    array = xr.DataArray([[1, 0]], dims=("subject", "item"))
    assert read_table(array).n_items == 2
    with pytest.raises(InputError, match="layout='long' goes with"):
        read_table(array, layout="long")
    with pytest.raises(InputError, match="layout='wide' if it has"):
        read_table(wide)
    with pytest.raises(InputError, match="layout is 'long' or 'wide'"):
        read_table(wide, layout="square")
    with pytest.raises(InputError, match="must be a pandas DataFrame; got dict"):
        read_table({"subject": ["m"]})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "a.csv is empty"),
        ("a.csv", b"\n\n", "cannot be read as a csv table"),
        ("a.csv", b"subject,item,answer\n", "has no rows"),
        ("a.csv", b"\xff\xfe\x00\x01\x80 not a table", "cannot be read|no column"),
        ("a.csv", b"subject,item,answer\nm,q,1,9\n", "cannot be read as a csv table"),
        ("a.csv", b"<html><body>404</body></html>", "no column 'subject', 'item'"),
        ("a.csv.gz", b"subject,item,answer\nm,q,1\n", "cannot be read as a csv table"),
        ("a.csv.gz", gzip.compress(b"subject,item,answer\nm,q,1\n", mtime=0)[:-12], "cannot be read as a csv table"),
        ("a.parquet", b"PAR1 no", "cannot be read as a parquet table"),
        ("a.jsonl", b"{]", "cannot be read as a jsonl table"),
        ("a.xlsx", b"PK", "unknown ending '.xlsx'"),
        ("a", b"x", "unknown ending ''"),
    ],
)
def test_files_that_are_no_table(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_table(path)


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(InputError, match="is no file"):
        read_table(tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.sampled_from(["a.csv", "a.tsv.gz", "a.parquet", "a.jsonl"]), st.booleans())
def test_any_bytes_raise_nothing_but_input_errors(tmp_path, content, name, header):
    path = tmp_path / name
    path.write_bytes(b"subject,item,answer\n" * header + content)
    for layout in (None, "wide"):
        try:
            read_table(path, layout=layout)
        except InputError:
            continue
