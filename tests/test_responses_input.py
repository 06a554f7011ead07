"""Answers that cannot be used: refused by row, column and value, and never by anything but InputError."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bayes_irsl.curves import chance_corrected
from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses

NAN = np.nan


def long_frame(**columns):
    return pd.DataFrame({"subject": ["m1", "m1", "m2"], "item": ["q1", "q2", "q1"], "answer": [1, 0, 1], **columns})


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ([[5, 1]], {"trials": 4}, r"row '0', column '0': 5 successes of 4 trials"),
        ([[-1, 1]], {"trials": 4}, r"column '0': -1 successes"),
        ([[1.5, 1]], {"trials": 4}, r"1\.5 successes of 4 trials; successes must be whole"),
        ([[1, 1]], {"trials": 1.5}, r"trials must be whole"),
        ([[1, 1]], {"trials": -2}, r"trials must be whole"),
        ([[1, 1]], {"trials": 2**25}, r"can be held exactly"),
        ([[1, 1]], {"trials": "ten"}, r"trials= is a whole number"),
        ([[1, 1]], {"trials": [1, 2, 3]}, r"one an item \(2\)"),
        ([[1, 1]], {"trials": [1, NAN]}, r"column '1': 1 successes of nan trials; give the number"),
        ([[0.5, 1.2]], {}, r"column '1': 1\.2"),
        ([[0.5, np.inf]], {}, r"column '1': inf"),
        ([["a", 1]], {}, r"row '0', column '0': 'a' is text"),
        ([["0.5", 1]], {}, r"number written as text"),
        ([[1 + 2j, 1]], {}, r"is no number"),
        ([[NAN, NAN]], {}, r"all answers of 1 subjects to 2 items are missing"),
        ([[1, 0], [1]], {}, r"unequal length"),
        ([1, 0], {}, r"got shape \(2,\)"),
        ([[]], {}, r"got shape \(1, 0\)"),
        ("table.csv", {}, r"got shape \(\)"),
    ],
)
def test_bad_wide_tables(table, options, message):
    with pytest.raises(InputError, match=message):
        Responses.from_wide(table, **options)


def test_labels_named_twice_are_refused():
    with pytest.raises(InputError, match="subject labels must be distinct; 'm'"):
        Responses.from_wide(pd.DataFrame([[1], [0]], index=["m", "m"]))
    with pytest.raises(InputError, match="item labels must be distinct; 'q'"):
        Responses.from_wide(pd.DataFrame([[1, 0]], columns=["q", "q"]))
    with pytest.raises(InputError, match="item labels must be distinct; '1'"):
        Responses.from_wide(pd.DataFrame([[1, 0]], columns=[1, "1"]))
    with pytest.raises(InputError, match="label in row 1 is missing"):
        Responses.from_wide(pd.DataFrame([[1], [0]], index=["m", None]))


def test_data_10_sentinel_codes_are_refused_unless_named():
    """DATA-10: row, column and value named; with the codes given, equal to the table coded with NaN."""
    table = [[1, 0, -1], [0, 1, 1], [1, -99999, 0]]
    with pytest.raises(InputError, match=r"row '0', column '2': -1; row '2', column '1': -99999") as caught:
        Responses.from_wide(table)
    assert "missing_codes=[-99999, -1]" in str(caught.value)
    named = Responses.from_wide(table, missing_codes=(-1, -99999))
    coded = Responses.from_wide([[1, 0, NAN], [0, 1, 1], [1, NAN, 0]])
    assert named.data_hash == coded.data_hash
    assert "2 of 9 answers are missing" in named.notes[0]
    frame = long_frame(answer=[1, -1, 0])
    with pytest.raises(InputError, match=r"row 1, column 'answer' \(subject 'm1', item 'q2'\): -1"):
        Responses.from_long(frame)
    assert Responses.from_long(frame, missing_codes=-1).n_obs == 2
    assert Responses.from_long(long_frame(answer=[1, "timeout", 0]), missing_codes="timeout").n_obs == 2
    with pytest.raises(InputError, match="missing_codes takes numbers or texts"):
        Responses.from_long(frame, missing_codes=[[1]])


def test_the_callers_table_is_left_as_it_was():
    table = np.array([[1.0, -1.0], [0.0, NAN]])
    before = table.copy()
    Responses.from_wide(table, missing_codes=-1, missing_as="wrong")
    np.testing.assert_array_equal(table, before)


def test_data_03_percent_and_mixed_scales_are_refused_with_advice():
    """DATA-03: fractions beside percent are named, percent alone gets advice, nothing is guessed."""
    with pytest.raises(InputError, match="divide by 100"):
        Responses.from_wide([[55.9, 69.2], [47.9, 12.0]])
    mixed = pd.DataFrame({"mmlu": [0.53, 0.69], "bbh": [47.88, 55.93], "arc": [0.1, 1.0]})
    with pytest.raises(InputError, match=r"items 'bbh' go above 1\.5 while 'mmlu', 'arc' stay within"):
        Responses.from_wide(mixed)
    long = mixed.rename_axis("subject").reset_index().melt("subject", var_name="item", value_name="answer")
    with pytest.raises(InputError, match=r"benchmarks 'bbh' go above 1\.5"):
        Responses.from_long(long.assign(benchmark=long["item"]))
    with pytest.raises(InputError, match="pass trials="):
        Responses.from_wide([[3, 0], [4, 1]])


def test_data_03_chance_correction():
    """DATA-03: rescale each subtask first, then average; below chance stays negative."""
    assert chance_corrected(0.5309176, 0.1) == pytest.approx(0.478797, abs=5e-7)
    subtasks = chance_corrected([0.80, 0.30], [1 / 2, 1 / 5])
    np.testing.assert_allclose(subtasks, [0.600, 0.125])
    assert subtasks.mean() == pytest.approx(0.3625)
    assert chance_corrected(0.2, 0.25) == pytest.approx(-1 / 15)
    with pytest.raises(InputError, match="divided by 100"):
        chance_corrected(53.1, 0.1)
    with pytest.raises(InputError, match="share in"):
        chance_corrected(0.5, 1.0)
    with pytest.raises(InputError, match="numbers"):
        chance_corrected("x", 0.1)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("compute", [1e21, 1e21, -1], r"subject 'm2', column 'compute': -1; compute must be positive"),
        ("compute", [1e21, 1e21, 0], r"positive and finite"),
        ("compute", [1e21, 1e21, np.inf], r"positive and finite"),
        ("compute", [1e21, 1e21, "big"], r"subject 'm2', column 'compute': 'big' is text"),
        ("date", ["2024-01-02", "2024-01-02", "02/01/2024"], r"'02/01/2024' is no date"),
        ("date", [2024, 2024, 2025], r"a date must be text"),
        ("chance", [0.1, 0.2, 0.1], None),
        ("chance", [1.0, 0.2, 1.0], r"chance must be in \[0, 1\)"),
        ("chance", [-0.1, 0.2, -0.1], r"chance must be in"),
        ("benchmark", ["a", "a", "b"], r"item 'q1' had 'a' before"),
        ("benchmark", ["a", None, "a"], r"item 'q2' has no benchmark"),
    ],
)
def test_descriptions_are_checked(column, values, message):
    if message is None:
        assert Responses.from_long(long_frame(**{column: values})).items[column].tolist() == [0.1, 0.2]
        return
    with pytest.raises(InputError, match=message):
        Responses.from_long(long_frame(**{column: values}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"answer": "score"}, "no column 'score' for answer"),
        ({"item": "question"}, "no column 'question' for item"),
        ({"successes": "answer"}, "counts need both"),
        ({"trials": "answer"}, "counts need both"),
        ({"successes": "answer", "trials": 3, "answer": "answer"}, "not both"),
        ({"subject": []}, "names no column"),
    ],
)
def test_bad_arguments_of_long(options, message):
    with pytest.raises(InputError, match=message):
        Responses.from_long(long_frame(), **options)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ([1, 2], "must be a pandas DataFrame; got list"),
        (pd.DataFrame(), "has no rows"),
        (long_frame(subject=["m1", None, "m2"]), "row 1, column 'subject': the subject label is missing"),
        (long_frame(subject=[[1], [2], [3]]), "cannot be labels"),
        (long_frame(answer=[1, "x", 0]), r"row 1, column 'answer' \(subject 'm1', item 'q2'\): 'x' is text"),
        (long_frame(answer=pd.to_datetime(["2024-01-01"] * 3)), "is no number"),
        (long_frame(answer=[NAN] * 3), "all answers"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "column 'a' more than once"),
        (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), "2 levels"),
    ],
)
def test_bad_long_tables(frame, message):
    with pytest.raises(InputError, match=message):
        Responses.from_long(frame)


_cell = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.complex_numbers(),
    st.dates(),
    st.lists(st.integers(), max_size=2),
    st.just(pd.NA),
    st.just(pd.NaT),
)
_label = st.one_of(st.sampled_from(["a", "b", 1, 1.0]), _cell)
_answer = st.one_of(st.sampled_from([0, 1, 1, 0.5]), _cell)
_extra = st.sampled_from(["compute", "date", "benchmark", "trials", "chance", "n_options", "family", "x", 3, None])


@st.composite
def junk_frames(draw):
    """Frames that look like answers, with anything at all in any cell, and sometimes without a column."""
    extras = draw(st.lists(_extra, max_size=3))
    size = draw(st.integers(0, 4))
    columns = {"subject": _label, "item": _label, "answer": _answer} | dict.fromkeys(extras, _answer)
    rows = [[draw(cell) for cell in columns.values()] for _ in range(size)]
    frame = pd.DataFrame(rows, columns=pd.Index(list(columns), dtype=object), dtype=object)
    return frame.iloc[:, draw(st.integers(0, 1)) :] if draw(st.integers(0, 9)) == 0 else frame


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(junk_frames(), st.sampled_from(["raise", "first", "last", "mean", "sum"]), st.booleans())
def test_junk_frames_raise_nothing_but_input_errors(frame, duplicates, counts):
    options = {"successes": "answer", "trials": "trials"} if counts else {}
    for make in (
        lambda: Responses.from_long(frame, duplicates=duplicates, **options),
        lambda: Responses.from_wide(frame),
    ):
        try:
            responses = make()
        except InputError:
            continue
        assert np.isfinite(responses.answer).all()
        assert (responses.rate >= 0).all()
        assert (responses.rate <= 1).all()


@settings(deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.int64, np.bool_, np.complex128]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    st.sampled_from([None, 3, NAN, [1, 2]]),
)
def test_junk_arrays_raise_nothing_but_input_errors(array, trials):
    try:
        responses = Responses.from_wide(array, trials=trials)
    except InputError:
        return
    np.testing.assert_allclose(
        responses.answer, array[~np.isnan(array)].ravel().astype(np.float32), rtol=1e-6, atol=1e-37
    )
