"""Item banks: what goes in comes out, from fits, files and parts; and what must be refused."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bayes_irsl.bank import ItemBank
from bayes_irsl.curves import difficulty_from_intercept
from bayes_irsl.errors import InputError
from bayes_irsl.linking import Link
from bayes_irsl.responses import Responses
from bayes_irsl.scoring import score
from bayes_irsl.spec import ItemResponse

LABELS = ["q1", "q2", "q3", "q4"]


def fake_fit(spec=None, dimension=None, trials=None, **extra):
    """A fit as fit() returns it, with 2 x 30 draws made up for 5 subjects and 4 items."""
    rng = np.random.default_rng(0)
    table = np.array([[1, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 1], [0, 0, 0, 1], [1, 0, np.nan, 1.0]])
    frame = pd.DataFrame({"benchmark": ["x", "x", "y", "y"], "category": ["p", "q", "p", "q"]}, index=LABELS)
    responses = Responses.from_wide(table, items=frame, subjects=["s1", "s2", "s3", "s4", "s5"], trials=trials)
    shape, item = (2, 30), ("chain", "draw", "item")
    theta_dims, theta_shape = ("chain", "draw", "subject"), (*shape, 5)
    if dimension is not None:
        theta_dims, theta_shape = (*theta_dims, "dimension"), (*theta_shape, 2)
    variables = {
        "a": (item, np.exp(0.3 * rng.normal(size=(*shape, 4))).astype(np.float32)),
        "b": (item, rng.normal(size=(*shape, 4)).astype(np.float32)),
        "theta": (theta_dims, rng.normal(size=theta_shape)),
        "mean_intercept": ((*item[:2], "benchmark"), np.zeros((*shape, 2))),
        "sd_intercept": ((*item[:2], "benchmark"), np.full((*shape, 2), [1.0, 100.0])),
        **extra,
    }
    coords = {"item": LABELS, "subject": list(responses.subjects.index), "benchmark": ["x", "y"]}
    constant = {"item_dimension": ("item", np.array(["ability"] * 4 if dimension is None else dimension))}
    if dimension is not None:
        coords["dimension"] = ["p", "q"]
    groups = {
        "posterior": xr.Dataset(variables, coords),
        "constant_data": xr.Dataset(constant, {"item": LABELS}),
    }
    spec = (spec or ItemResponse()).resolve(responses)
    return SimpleNamespace(spec=spec, responses=responses, tree=xr.DataTree.from_dict(groups))


def test_from_fit_takes_draws_of_the_posterior_without_replacement():
    fit = fake_fit()
    bank = ItemBank.from_fit(fit, draws=40, seed=3)
    joint = fit.tree["posterior"].to_dataset().stack(sample=("chain", "draw"))
    pool = {tuple(row) for row in np.concatenate([joint["a"].values.T, joint["b"].values.T], axis=1)}
    ours = {tuple(row) for row in np.concatenate([bank.a, bank.b], axis=1)}
    assert len(ours) == 40
    assert ours <= pool
    assert ItemBank.from_fit(fit, draws=1000).n_draws == 60
    np.testing.assert_array_equal(bank.a, ItemBank.from_fit(fit, draws=40, seed=3).a)
    assert not np.array_equal(bank.a, ItemBank.from_fit(fit, draws=40, seed=4).a)
    for bad in (0, -1, 2.5, True):
        with pytest.raises(InputError, match="draws"):
            ItemBank.from_fit(fit, draws=bad)


def test_from_fit_keeps_what_the_calibration_knew():
    fit = fake_fit()
    bank = ItemBank.from_fit(fit)
    assert list(bank.items.index) == LABELS
    assert bank.items["n_answers"].tolist() == [5, 5, 4, 5]
    assert bank.items["no_variation"].tolist() == [False, False, False, True]
    theta = fit.tree["posterior"]["theta"].mean(("chain", "draw"))
    assert bank.theta_range["ability"] == pytest.approx((theta.min().item(), theta.max().item()))
    assert bank.items["curve"].tolist() == ["2pl"] * 4
    assert bank.prior == (0.0, 1.0)
    assert "mean 0 and sd 1" in bank.scale
    assert "1 items, answered alike by all" in repr(bank)
    assert "prior-led" in bank._repr_html_()


def test_bin_13_items_that_the_data_hardly_moved_are_prior_led():
    bank = ItemBank.from_fit(fake_fit())
    intercept = (bank.a * bank.b).std(0)
    np.testing.assert_allclose(bank.items["sd_ratio"], intercept / [1, 1, 100, 100], rtol=0.01)
    assert bank.items["prior_led"].tolist() == [True, True, False, False]
    assert "prior-led: 50% of items" in repr(bank)


def test_from_fit_with_precision_edges_and_dimensions():
    draws = ("chain", "draw")
    extra = {
        "phi": (draws, np.full((2, 30), 12.0)),
        "cut_zero": (draws, np.full((2, 30), 2.0)),
        "cut_one": (draws, np.full((2, 30), 3.0)),
    }
    spec = ItemResponse(likelihood="binomial", abilities="category")
    fit = fake_fit(spec, dimension=["p", "q", "p", "q"], trials=3, **extra)
    bank = ItemBank.from_fit(fit)
    assert bank.dimensions == ("p", "q")
    assert set(bank.theta_range) == {"p", "q"}
    assert bank.items["trials"].tolist() == [3] * 4
    fit.spec = ItemResponse(likelihood="ordered-beta")
    bank = ItemBank.from_fit(fit)
    assert (bank.phi == 12).all()
    assert (bank.edges["cut_one"] == 3).all()


def test_bin_16_fixed_guessing_stays_exact_through_extend_select_and_file(tmp_path):
    c = np.broadcast_to([0.25, 0.25, 0.1, 0.2], (2, 30, 4)).copy()
    c[..., 2:] += 0.01 * np.random.default_rng(1).random((2, 30, 2))
    fit = fake_fit(ItemResponse(curve="3pl", guessing="fixed"), c=(("chain", "draw", "item"), c))
    bank = ItemBank.from_fit(fit)
    new = ItemBank.from_parameters(1.0, [0.0, 1.0], items=["n1", "n2"], scale_id=bank.scale_id)
    longer = bank.extend(new)
    assert longer.items["curve"].tolist() == ["3pl"] * 4 + ["1pl"] * 2
    assert longer.n_draws == 1
    many = bank.extend(ItemBank.from_parameters(np.ones((60, 1)), 0.5, items=["n3"], scale_id=bank.scale_id))
    for kept in (bank, longer, many, ItemBank.load(bank.save(tmp_path / "bank.nc")), many.select(LABELS)):
        assert (kept.c[:, :2] == 0.25).all()
    assert (longer.c[:, 4:] == 0).all()
    assert many.c[:, 2].std() > 0


def test_bin_02_difficulty_is_higher_where_items_are_harder():
    assert float(difficulty_from_intercept(5.742, -2.248)) == pytest.approx(0.3915, abs=1e-4)
    labels = ["easy", "medium", "hard"]
    frame = pd.DataFrame({"benchmark": labels}, index=labels)
    bank = ItemBank.from_parameters(1.0, [-2.9, 0.0, 2.9], items=frame)
    table = np.array([[np.nan, np.nan, np.nan], [np.nan, 1, np.nan]])
    out = score(bank, Responses.from_wide(table, items=labels, kind="binary")).isel(subject=0)
    assert out["benchmark"].values.tolist() == labels
    assert (np.diff(out["score_mean"]) < -0.2).all()
    assert bank.summary()["b_mean"].is_monotonic_increasing


def test_bin_12_slopes_that_are_not_positive_are_refused_by_name():
    with pytest.raises(InputError, match=r"a of item '0', '1', '2', '3', '4' must be positive; got -2"):
        ItemBank.from_parameters(np.linspace(-2, 2, 10), np.zeros(10))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": [1.0, np.nan], "b": 0.0}, "a of item '1' must be finite"),
        ({"a": 1.0, "b": [0.0, np.inf]}, "b of item '1' must be finite"),
        ({"a": 1.0, "b": 0.0, "c": 1.0}, r"c of item '0' must be in \[0, 1\)"),
        ({"a": 1.0, "b": 0.0, "phi": -1.0, "likelihood": "beta"}, "phi of item '0' must be positive"),
        ({"a": 1.0, "b": 0.0, "likelihood": "beta"}, "needs draws of"),
        ({"a": 1.0, "b": 0.0, "phi": 2.0, "likelihood": "ordered-beta"}, "cut_zero"),
        ({"a": 1.0, "b": 0.0, "likelihood": "gaussian"}, "expected one of"),
        ({"a": [1.0, 1.0], "b": [0.0, 0.0, 0.0]}, "one shape"),
        ({"a": 1.0, "b": ["hard"]}, "must be numbers"),
        ({"a": 1.0, "b": []}, "at least one draw of one item"),
        ({"a": 1.0, "b": [0.0, 1.0], "items": ["x"]}, "1 labels for 2 items"),
        ({"a": 1.0, "b": [0.0, 1.0], "items": ["x", "x"]}, "distinct"),
        ({"a": 1.0, "b": 0.0, "prior": (0.0, -1.0)}, "positive sd"),
    ],
)
def test_parameters_that_cannot_be_used(arguments, message):
    with pytest.raises(InputError, match=message):
        ItemBank.from_parameters(**arguments)


def test_file_brings_everything_back(tmp_path):
    frame = pd.DataFrame(
        {
            "benchmark": ["x", "y"],
            "category": ["p", None],
            "chance": [0.25, np.nan],
            "no_variation": [True, False],
            "date": pd.to_datetime(["2024-05-17", None]),
        },
        index=["ö1", "2"],
    )
    bank = ItemBank.from_parameters(
        np.ones((3, 2)),
        np.arange(6.0).reshape(3, 2),
        c=[0.0, 0.2],
        phi=5.0,
        items=frame,
        likelihood="ordered-beta",
        edges={"cut_zero": np.ones((3, 1)), "cut_one": np.full((3, 1), 2.0)},
        theta_range={"ability": (-2.0, 1.5)},
        prior=(0.5, 2.0),
        scale_id="here",
    )
    bank = bank.rescale(
        Link(np.array([2.0, 2.1, 1.9]), np.array([0.1, 0.2, 0.3]), pd.DataFrame({"off": [0.0]}), "by hand")
    )
    path = bank.save(tmp_path / "bank.nc")
    back = ItemBank.load(path)
    for name in ("a", "b", "c", "phi", "links"):
        np.testing.assert_array_equal(getattr(back, name), getattr(bank, name))
    pd.testing.assert_frame_equal(back.items, bank.items, check_dtype=False)
    assert dict(back.theta_range) == dict(bank.theta_range)
    for name in ("likelihood", "prior", "scale", "scale_id", "squeeze"):
        assert getattr(back, name) == getattr(bank, name)
    np.testing.assert_array_equal(back.edges["cut_one"], bank.edges["cut_one"])
    back.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["bank.nc"]
    with xr.open_dataset(path) as raw:
        assert "higher is harder" in raw["b"].attrs["long_name"]


def test_files_that_hold_no_bank_are_refused(tmp_path):
    text, other, damaged = tmp_path / "a.csv", tmp_path / "b.nc", tmp_path / "c.nc"
    text.write_text("subject,item\n")
    xr.Dataset({"x": 1}).to_netcdf(other)
    bank = ItemBank.from_parameters(1.0, [0.0, 1.0])
    with xr.open_dataset(bank.save(damaged)) as opened:
        whole = opened.load()
    whole.drop_vars("item_benchmark").to_netcdf(damaged)
    for path, message in (
        (tmp_path / "nowhere.nc", "there is no file"),
        (text, "no NetCDF file"),
        (other, "no item bank"),
        (damaged, "part missing"),
    ):
        with pytest.raises(InputError, match=message):
            ItemBank.load(path)


def test_select_keeps_order_and_names_what_is_not_there():
    bank = ItemBank.from_parameters(
        [1.0, 2.0, 3.0], [0.0, 1.0, 2.0], items=["a1", "a2", "a3"], phi=4.0, likelihood="beta"
    )
    assert bank.select(["a3", "a1"]).a.tolist() == [[3.0, 1.0]]
    assert bank.select(np.array([False, True, False])).phi.tolist() == [[4.0]]
    assert bank.select("a2").n_items == 1
    with pytest.raises(InputError, match=r"a4.*a"):
        bank.select(["a1", "a4"])
    with pytest.raises(InputError, match="mask"):
        bank.select(np.array([True]))


def test_extend_refuses_other_scales_kinds_and_known_items():
    bank = ItemBank.from_parameters(1.0, [0.0, 1.0], items=["x", "y"])
    for other, message in (
        (ItemBank.from_parameters(1.0, [0.0], items=["z"], scale_id="elsewhere"), "two scales"),
        (ItemBank.from_parameters(1.0, [0.0], items=["z"], likelihood="binomial"), "cannot be in one bank"),
        (ItemBank.from_parameters(1.0, [0.0], items=["y"]), "'y' is in both"),
    ):
        with pytest.raises(InputError, match=message):
            bank.extend(other)


def test_banks_do_not_change_and_say_what_they_are():
    frame = pd.DataFrame({"benchmark": ["x"] * 2}, index=["i", "j"])
    bank = ItemBank.from_parameters(1.0, [0.0, 1.0], items=frame)
    frame.loc["i", "benchmark"] = "changed"
    assert bank.benchmarks == ("x",)
    with pytest.raises(ValueError, match="read-only"):
        bank.a[0, 0] = 5
    with pytest.raises(AttributeError):
        bank.a = bank.b
    assert "x (2 items)" in repr(bank)
    assert "1pl" in repr(bank)


def test_summary_gives_intervals_and_names_them():
    rng = np.random.default_rng(5)
    bank = ItemBank.from_parameters(np.exp(rng.normal(size=(4000, 1))), rng.normal(size=(4000, 1)), c=0.1)
    table = bank.summary(mass=0.8)
    assert table["b_lower"].item() == pytest.approx(-1.28, abs=0.08)
    assert table["b_upper"].item() == pytest.approx(1.28, abs=0.08)
    assert table["c_mean"].item() == pytest.approx(0.1)
    assert table.attrs["interval"] == "equal-tailed, 80%"
