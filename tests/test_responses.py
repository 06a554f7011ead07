"""The container of answers: what goes in and what comes out."""

import time
import tracemalloc
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses

NAN = np.nan


def long_frame(**columns):
    return pd.DataFrame({"subject": ["m1", "m1", "m2"], "item": ["q1", "q2", "q1"], "answer": [1, 0, 1], **columns})


def assert_same(left: Responses, right: Responses) -> None:
    assert left.data_hash == right.data_hash
    assert left.kind == right.kind
    np.testing.assert_array_equal(left.answer, right.answer)


def test_long_and_wide_tables_hold_the_same_answers():
    wide = pd.DataFrame([[1.0, 0.0], [1.0, NAN]], index=["m1", "m2"], columns=["q1", "q2"])
    from_wide = Responses.from_wide(wide)
    from_long = Responses.from_long(long_frame())
    assert_same(from_wide, from_long)
    assert from_long.kind == "binary"
    assert (from_long.n_subjects, from_long.n_items, from_long.n_obs) == (2, 2, 3)
    assert from_long.density == 0.75
    assert not from_long.is_complete
    assert from_long.subject_index.dtype == from_long.item_index.dtype == np.int32
    assert from_long.answer.dtype == np.float32


def test_order_of_rows_does_not_matter_but_labels_keep_input_order():
    frame = long_frame()
    shuffled = Responses.from_long(frame.iloc[[2, 0, 1]], subjects=["m1", "m2"], items=["q1", "q2"])
    assert_same(shuffled, Responses.from_long(frame))
    assert list(Responses.from_long(frame.iloc[::-1]).subjects.index) == ["m2", "m1"]


def test_arrays_cannot_be_written_to():
    responses = Responses.from_long(long_frame())
    with pytest.raises(ValueError, match="read-only"):
        responses.answer[0] = 0
    with pytest.raises(AttributeError):
        responses.kind = "count"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[0, 1]], "binary"),
        ([[True, False]], "binary"),
        ([[0.0, 0.5]], "probability"),
        ([[0.2, 0.9]], "probability"),
    ],
)
def test_kind_follows_the_values(values, kind):
    assert Responses.from_wide(values).kind == kind


def test_kind_can_be_said():
    assert Responses.from_wide([[0, 1]], kind="probability").kind == "probability"
    with pytest.raises(InputError, match=r"column '1': 0\.5; with kind='binary'"):
        Responses.from_wide([[0, 0.5]], kind="binary")
    with pytest.raises(InputError, match="needs the number of trials"):
        Responses.from_wide([[0, 1]], kind="count")
    with pytest.raises(InputError, match="kind is one of"):
        Responses.from_wide([[0, 1]], kind="percent")


@pytest.mark.parametrize("trials", [4, [4, 4], [[4, 4], [4, 4]], np.int64(4), 4.0])
def test_counts_from_wide(trials):
    responses = Responses.from_wide([[4, 0], [NAN, 2]], trials=trials)
    assert responses.kind == "count"
    np.testing.assert_array_equal(responses.answer, [4, 0, 2])
    np.testing.assert_array_equal(responses.trials, [4, 4, 4])
    np.testing.assert_array_equal(responses.rate, np.float32([1, 0, 0.5]))


def test_trials_by_item_label_are_matched_by_label():
    wide = pd.DataFrame([[4, 0], [1, 2]], columns=["q1", "q2"])
    by_item = Responses.from_wide(wide, trials=pd.Series({"q2": 2, "q1": 5}))
    np.testing.assert_array_equal(by_item.trials, [5, 2, 5, 2])
    table = Responses.from_wide(wide, trials=pd.DataFrame([[6, 2], [6, 3]], index=[1, 0], columns=["q1", "q2"]))
    np.testing.assert_array_equal(table.trials, [6, 3, 6, 2])
    with pytest.raises(InputError, match="trials= has no item 'q2'"):
        Responses.from_wide(wide, trials=pd.Series({"q1": 5}))


def test_zero_of_zero_is_missing():
    responses = Responses.from_wide([[0, 1]], trials=[0, 2])
    assert responses.n_obs == 1
    assert list(responses.items.index) == ["0", "1"]


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (1, 1)])
def test_one_subject_or_one_item_is_a_table(shape):
    responses = Responses.from_wide(np.ones(shape))
    assert (responses.n_subjects, responses.n_items) == shape
    assert responses.dense()[0].shape == shape


def test_data_05_missing_is_missing_unless_called_wrong():
    """DATA-05: four questions not reached."""
    row = np.array([[1, 1, 1, 1, 0, 0, NAN, NAN, NAN, NAN]])
    default = Responses.from_wide(row)
    assert default.n_obs == 6
    assert default.answer.sum() == 4
    assert default.n_items == 10
    assert "4 of 10 answers are missing and left out" in default.notes[0]
    wrong = Responses.from_wide(row, missing_as="wrong")
    assert (wrong.n_obs, wrong.answer.sum()) == (10, 4)
    assert "count as wrong" in wrong.notes[0]
    long = long_frame(answer=[1, NAN, 0])
    assert Responses.from_long(long, missing_as="wrong").n_obs == 3
    with pytest.raises(InputError, match="missing_as is one of 'missing', 'wrong'"):
        Responses.from_wide(row, missing_as="zero")


def test_data_06_rows_and_columns_without_data_stay_in_place():
    """DATA-06: 5 x 5, row 3 and column 2 all missing."""
    table = np.ones((5, 5))
    table[:, :3] = 0
    table[2, :] = NAN
    table[:, 1] = NAN
    responses = Responses.from_wide(table)
    assert list(responses.subjects.index) == list(responses.items.index) == ["0", "1", "2", "3", "4"]
    np.testing.assert_array_equal(np.diff(responses.by_subject()[1]), [4, 4, 0, 4, 4])
    np.testing.assert_array_equal(np.diff(responses.by_item()[1]), [4, 0, 4, 4, 4])
    np.testing.assert_array_equal(responses.dense()[0], table.astype(np.float32))
    long = Responses.from_long(long_frame(answer=[1, NAN, NAN]), subjects=["m0", "m1", "m2"], items=["q1", "q2", "q3"])
    assert list(long.subjects.index) == ["m0", "m1", "m2"]
    assert list(long.items.index) == ["q1", "q2", "q3"]


def test_data_07_sparse_memory_goes_with_the_answers():
    """DATA-07: 10,000 x 2,000 with 20 answers a row; a dense float32 table alone would be 80 MB."""
    rng = np.random.default_rng(0)
    n_subjects, n_items, each = 10_000, 2_000, 20
    items = np.concatenate([rng.choice(n_items, each, replace=False) for _ in range(n_subjects)])
    frame = pd.DataFrame({"subject": np.repeat(np.arange(n_subjects), each), "item": items})
    frame["answer"] = rng.random(len(frame)).astype(np.float32)
    tracemalloc.start()
    responses = Responses.from_long(frame)
    responses.by_item()
    train, test = responses.holdout(0.1, seed=0)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert responses.n_obs == 200_000
    assert (train.n_obs, test.n_obs) == (180_000, 20_000)
    assert peak < 40e6
    assert held < 12e6


def test_large_dense_table_without_a_copy_storm():
    table = np.random.default_rng(0).random((500, 8_000), dtype=np.float32)
    tracemalloc.start()
    start = time.perf_counter()
    responses = Responses.from_wide(table)
    seconds = time.perf_counter() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert responses.is_complete
    assert seconds < 10
    assert peak < 6 * table.nbytes  # three arrays as large as the table are kept


def test_data_08_repeats_are_kept_as_counts():
    """DATA-08: 2 questions x 8 repeats, 6 and 2 right."""
    answers = [0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0]
    frame = pd.DataFrame({"subject": "m", "item": ["q1"] * 8 + ["q2"] * 8, "answer": answers})
    with pytest.raises(InputError, match=r"row 1, .* repeats row 0, .*repeats in all: 14.*duplicates='sum'"):
        Responses.from_long(frame)
    counts = Responses.from_long(frame, duplicates="sum")
    assert counts.kind == "count"
    np.testing.assert_array_equal(counts.answer, [6, 2])
    np.testing.assert_array_equal(counts.trials, [8, 8])
    np.testing.assert_array_equal(counts.rate, [0.75, 0.25])
    np.testing.assert_array_equal(Responses.from_long(frame, duplicates="first").answer, [0, 1])
    np.testing.assert_array_equal(Responses.from_long(frame, duplicates="last").answer, [0, 0])
    mean = Responses.from_long(frame, duplicates="mean")
    assert mean.kind == "probability"
    np.testing.assert_array_equal(mean.answer, [0.75, 0.25])
    assert any("duplicates='sum'" in note for note in counts.notes)


def test_repeats_of_counts_and_of_probabilities():
    frame = pd.DataFrame({"subject": "m", "item": ["q", "q", "r"], "c": [1, 2, 3], "n": [4, 5, 6]})
    counts = Responses.from_long(frame, successes="c", trials="n", duplicates="sum")
    np.testing.assert_array_equal(counts.answer, [3, 3])
    np.testing.assert_array_equal(counts.trials, [9, 6])
    with pytest.raises(InputError, match="counts add up"):
        Responses.from_long(frame, successes="c", trials="n", duplicates="mean")
    frame["p"] = [0.25, 0.5, 0.31]
    np.testing.assert_allclose(Responses.from_long(frame, answer="p", duplicates="mean").answer, [0.375, 0.31])
    with pytest.raises(InputError, match="for probabilities say duplicates='mean'"):
        Responses.from_long(frame, answer="p", duplicates="sum")
    with pytest.raises(InputError, match="duplicates is one of"):
        Responses.from_long(frame, answer="p", duplicates="median")


def test_a_missing_answer_is_no_repeat():
    """DATA-02, seen from the table: a row without an answer beside one that has it."""
    frame = pd.DataFrame({"subject": "m", "item": ["q", "q"], "answer": [NAN, 1]})
    assert Responses.from_long(frame).answer.tolist() == [1]


def test_beta_08_shares_that_look_like_counts_get_a_note():
    """BETA-08: multiples of 1/10 are told, values of no common denominator are not."""
    tenths = Responses.from_wide([[0.7, 0.1], [0.4, 1.0]])
    assert any("multiple of 1/10" in note and "trials=10" in note for note in tenths.notes)
    assert not Responses.from_wide(np.random.default_rng(0).random((9, 9))).notes
    rng = np.random.default_rng(0)
    mixed = Responses.from_wide(rng.binomial([10, 1000], 0.7, (30, 2)) / [10, 1000])
    assert any("answers to 1 of 2 items" in note and "'0' of 1/10" in note for note in mixed.notes)
    # two values say little, and 0 and 1 nothing
    few = np.column_stack([np.tile([0.25, 0.5, 1.0], 3), rng.random(9)])
    assert not Responses.from_wide(few).notes


def test_beta_02_probabilities_inside_stay_inside():
    """BETA-02: no answer becomes an exact 0 or 1 by rounding to float32, nor is it moved; the summary counts them."""
    responses = Responses.from_wide([[1 - 1e-12, 1e-60, 0.5, 1.0, 0.0]])
    assert responses.answer.tolist() == [1 - 1e-12, 1e-60, 0.5, 1.0, 0.0]
    assert responses.summary().loc["benchmark", ["share_0", "share_1"]].tolist() == [0.2, 0.2]


def test_descriptions_come_from_columns_by_name():
    frame = long_frame(flops=[1e21, 1e21, NAN], task=["a", "b", "a"], date=["2024-05-01", "2024-05-01", None])
    responses = Responses.from_long(frame, compute="flops", benchmark="task")
    assert responses.subjects["compute"].tolist()[0] == 1e21
    assert np.isnan(responses.subjects["compute"].iloc[1])
    assert responses.subjects["date"].iloc[0] == pd.Timestamp("2024-05-01")
    assert responses.items["benchmark"].tolist() == ["a", "b"]
    assert list(responses.summary().index) == ["a", "b"]
    with pytest.raises(InputError, match=r"no column 'flop' for compute\. Did you mean 'flops'"):
        Responses.from_long(frame, compute="flop")
    with pytest.raises(InputError, match="unknown argument 'famliy'"):
        Responses.from_long(frame, famliy="task")


def test_a_column_that_varies_is_left_out_unless_asked_for():
    frame = long_frame(date=["2024-01-01", "2024-01-02", "2024-01-03"])
    responses = Responses.from_long(frame)
    assert "date" not in responses.subjects
    assert any("varies within subject 'm1'" in note for note in responses.notes)
    with pytest.raises(InputError, match="One subject has one date"):
        Responses.from_long(frame, date="date")


def test_labels_can_be_joined_from_columns():
    frame = pd.DataFrame({"subject": "m", "benchmark": ["a", "b"], "doc": [1, 1], "answer": [0, 1]})
    with pytest.raises(InputError, match=r"item=\['benchmark', '<column>'\]"):
        Responses.from_long(frame, item="doc")
    assert list(Responses.from_long(frame, item=["benchmark", "doc"]).items.index) == ["a/1", "b/1"]


def test_described_subjects_and_items():
    subjects = pd.DataFrame({"subject": ["m2", "m1", "m0"], "family": ["x", "y", None], "extra": [1, 2, 3]})
    responses = Responses.from_long(long_frame(), subjects=subjects)
    assert list(responses.subjects.index) == ["m2", "m1", "m0"]
    assert responses.subjects["extra"].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(responses.subject_index, [0, 1, 1])
    with pytest.raises(InputError, match="no subject in subjects= for 'm2'"):
        Responses.from_long(long_frame(), subjects=["m1"])
    with pytest.raises(InputError, match="takes a DataFrame or a list"):
        Responses.from_long(long_frame(), subjects="m1")
    with pytest.raises(InputError, match="has 3 labels but the table has 2 subjects"):
        Responses.from_wide([[1], [0]], subjects=["a", "b", "c"])


@pytest.mark.parametrize(
    "answer",
    [
        pd.array([1, None, 0], dtype="Int8"),
        pd.array([True, None, False], dtype="boolean"),
        pd.Series([1, None, 0], dtype=object),
        pd.Series([Decimal(1), pd.NA, Decimal(0)], dtype=object),
        pd.Categorical([1, None, 0]),
        pd.arrays.SparseArray([1.0, NAN, 0.0]),
    ],
)
def test_any_column_of_numbers_is_read(answer):
    responses = Responses.from_long(long_frame(answer=answer))
    assert responses.answer.tolist() == [1, 0]
    wide = Responses.from_wide(pd.DataFrame({"q1": answer, "q2": answer}))
    assert wide.answer.tolist() == [1, 1, 0, 0]


def test_whole_float_labels_lose_their_point():
    assert list(Responses.from_wide(pd.DataFrame([[1, 0]], columns=[1.0, 2.0])).items.index) == ["1", "2"]


def test_masked_array_keeps_its_mask():
    masked = np.ma.masked_array([[1, 99], [0, 1]], mask=[[False, True], [False, False]])
    assert Responses.from_wide(masked).n_obs == 3


def test_data_array_in_either_order_with_its_coordinates():
    array = xr.DataArray(
        [[1.0, 0.0], [NAN, 1.0], [0.0, 1.0]],
        dims=("item", "subject"),
        coords={
            "item": ["q1", "q2", "q3"],
            "subject": ["m1", "m2"],
            "family": ("subject", ["x", "y"]),
            "benchmark": ("item", ["a", "a", "b"]),
        },
    )
    responses = Responses.from_wide(array)
    assert (responses.n_subjects, responses.n_items) == (2, 3)
    assert responses.subjects["family"].tolist() == ["x", "y"]
    assert responses.items["benchmark"].tolist() == ["a", "a", "b"]
    np.testing.assert_array_equal(responses.dense()[0], array.T.to_numpy())
    counts = Responses.from_wide(array, trials=xr.full_like(array, 2))
    assert counts.trials.tolist() == [2] * 5
    with pytest.raises(InputError, match="two dims"):
        Responses.from_wide(array[0])


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.floats(0, 0.9),
    st.integers(0, 2**31),
)
def test_orders_dense_and_selection_agree(n_subjects, n_items, missing, seed):
    rng = np.random.default_rng(seed)
    table = rng.random((n_subjects, n_items)).astype(np.float32)
    table[rng.random(table.shape) < missing] = NAN
    if np.isnan(table).all():
        table[0, 0] = 0.5
    responses = Responses.from_wide(table)
    np.testing.assert_array_equal(responses.dense()[0], table)
    for order, starts, columns in (
        (*responses.by_subject(), table),
        (*responses.by_item(), table.T),
    ):
        assert sorted(order) == list(range(responses.n_obs))
        for k, row in enumerate(columns):
            np.testing.assert_array_equal(responses.answer[order[starts[k] : starts[k + 1]]], row[~np.isnan(row)])
    rows = rng.permutation(n_subjects)[: rng.integers(1, n_subjects + 1)]
    mask = rng.random(n_items) < 0.5
    chosen = responses.select(subjects=[str(r) for r in rows], items=mask)
    np.testing.assert_array_equal(chosen.dense()[0], table[rows][:, mask])
    order, starts = chosen.by_item()
    assert starts[-1] == chosen.n_obs == len(order)


def test_select_names_what_is_not_there():
    responses = Responses.from_long(long_frame())
    assert responses.select(subjects="m2").n_items == 2
    assert responses.select(items=["q2", "q1"]).dense()[0].tolist()[0] == [0, 1]
    assert responses.select(subjects=pd.array([True, False], dtype="boolean")).n_subjects == 1
    with pytest.raises(InputError, match="no subject 'm3'; there are 'm1', 'm2'"):
        responses.select(subjects=["m3"])
    with pytest.raises(InputError, match="mask of items has shape"):
        responses.select(items=[True])
    with pytest.raises(InputError, match="distinct"):
        responses.select(items=["q1", "q1"])
    with pytest.raises(InputError, match="labels or a boolean mask"):
        responses.select(items=[["q1"]])


def test_holdout_splits_cells():
    responses = Responses.from_wide(np.arange(40).reshape(5, 8), trials=40)
    train, test = responses.holdout(0.1, seed=1)
    assert (train.n_obs, test.n_obs) == (36, 4)
    assert train.subjects is responses.subjects
    assert sorted([*train.answer, *test.answer]) == list(range(40))
    assert test.trials.tolist() == [40] * 4
    assert_same(test, responses.holdout(0.1, seed=1)[1])
    assert test.data_hash != responses.holdout(0.1, seed=2)[1].data_hash
    with pytest.raises(InputError, match="share between 0 and 1"):
        responses.holdout(10, seed=0)
    with pytest.raises(InputError, match="at least two answers"):
        Responses.from_wide([[1]]).holdout(0.5, seed=0)


def test_constant_items():
    table = [[1, 0, 1, NAN], [1, 0, 0, 1], [1, NAN, 1, NAN]]
    assert Responses.from_wide(table).constant_items() == ["0", "1"]
    assert Responses.from_wide([[2, 1], [4, 2]], trials=[[2, 2], [4, 2]]).constant_items() == ["0"]
    assert Responses.from_wide([[1, 0]]).constant_items() == []


def test_annotate_adds_and_replaces():
    responses = Responses.from_long(long_frame(family=["x", "x", "y"]))
    more = responses.annotate(
        subjects=pd.DataFrame({"compute": [1e22], "family": ["z"]}, index=["m2"]),
        items=pd.DataFrame({"item": ["q1", "q2"], "benchmark": ["a", "b"]}),
    )
    assert more.subjects["family"].tolist() == ["x", "z"]
    assert more.subjects["compute"].tolist()[1] == 1e22
    assert more.items["benchmark"].tolist() == ["a", "b"]
    assert "compute" not in responses.subjects
    with pytest.raises(InputError, match="no subject 'm9'"):
        responses.annotate(subjects=pd.DataFrame({"compute": [1.0]}, index=["m9"]))


def test_xarray_and_netcdf_round_trip(tmp_path):
    frame = long_frame(
        family=["x", "x", None],
        compute=[1e21, 1e21, NAN],
        date=["2024-05-01", "2024-05-01", None],
        chance=[0.25, 0.1, 0.25],
    )
    responses = Responses.from_long(frame.assign(n=5), successes="answer", trials="n")
    dataset = responses.to_xarray()
    assert dataset.sizes == {"obs_id": 3, "subject": 2, "item": 2}
    assert_same(Responses.from_xarray(dataset), responses)
    dataset.to_netcdf(tmp_path / "responses.nc")
    back = Responses.from_xarray(xr.load_dataset(tmp_path / "responses.nc"))
    assert_same(back, responses)
    assert back.notes == responses.notes
    pd.testing.assert_frame_equal(back.subjects, responses.subjects)
    pd.testing.assert_frame_equal(back.items, responses.items)


def test_hash_changes_with_contents_and_labels():
    base = Responses.from_long(long_frame())
    assert base.data_hash == Responses.from_long(long_frame()).data_hash
    assert len(base.data_hash) == 64
    others = [
        Responses.from_long(long_frame(answer=[1, 1, 1])),
        Responses.from_long(long_frame(item=["q1", "q3", "q1"])),
        Responses.from_long(long_frame(benchmark=["a", "a", "a"])),
    ]
    assert len({base.data_hash, *(r.data_hash for r in others)}) == 4


def test_it_prints_itself():
    responses = Responses.from_wide([[1, NAN], [0, 2]], trials=[2, 3])
    assert "2 subjects x 2 items, 3 count answers of 2 to 3 trials (75.0% filled)" in repr(responses)
    assert "note: 1 of 4 answers are missing" in repr(responses)
    assert "<table" in responses._repr_html_()


def test_compute_in_another_unit_gets_a_note():
    assert any("read as FLOP" in n for n in Responses.from_long(long_frame(compute=[5.0, 5.0, 7.0])).notes)
