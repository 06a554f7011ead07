"""The report: one harmless, self-contained page with verdicts, intervals and the way back to the numbers."""

import html.parser
import re

import numpy as np
import pandas as pd
import pytest
from fit_stand_in import fit_of, ordinary_fit, simulate

import bayes_irsl as bi
from bayes_irsl.diagnostics import boundary_sensitivity
from bayes_irsl.errors import InputError
from bayes_irsl.report import Report, page
from bayes_irsl.report.page import merge_intervals
from bayes_irsl.report.sections import asked, reproduce
from bayes_irsl.spec import ItemResponse

NASTY = "<script>alert(1)</script>"
VOID = {"meta", "img", "br"}


class Outline(html.parser.HTMLParser):
    """Tags that are open at the end, all tags and attributes, and the text."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def report():
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=30), rng.normal(size=12)
    table = pd.DataFrame(
        simulate(theta, np.ones(12), b, rng=rng),
        index=[NASTY, "$\\frac{1}{", "通义", *(f"model {i}" for i in range(27))],
        columns=[f'"><img src=x onerror=alert({j})>' for j in range(12)],
    )
    families = {"family": np.resize([NASTY, "b&b"], 30)}
    hyper = {"sd_intercept": (("benchmark",), np.abs(rng.normal(1, 0.1, (4, 25, 1))))}
    fit = fit_of(table, theta, np.ones(12), b, subjects=families, extra=hyper)
    score = pd.DataFrame({"score": [0.5], "lower": [0.4], "upper": [0.6]}, index=[NASTY])
    score.attrs["caption"] = "90 % & more"
    return Report(fit, tables={"Scores": score})


def test_page_is_well_formed_self_contained_and_small(report):
    outline = Outline(report.html)
    assert outline.open == []
    assert report.html.startswith("<!DOCTYPE html>")
    assert not {"script", "link", "iframe", "object"} & set(outline.tags)
    sources = [value for name, value in outline.attributes if name in ("src", "href", "srcset")]
    assert sources
    assert all(value.startswith("data:image/png;base64,") for value in sources)
    assert not any(name.startswith("on") for name, _ in outline.attributes)
    assert ("name", "viewport") in outline.attributes
    assert "@media print" in report.html
    assert "@media (max-width" in report.html
    assert "url(" not in report.html
    assert len(report.html) < 2e6
    assert outline.tags.count("img") == sum(name == "alt" for name, _ in outline.attributes)


def test_names_are_harmless_and_stay_readable(report):
    assert NASTY not in report.html
    assert "onerror=alert(3)>" not in report.html.replace("&gt;", "")
    text = Outline(report.html).text
    assert NASTY in text
    assert "通义" in text
    assert "$\\frac{1}{" in text
    assert NASTY not in report._repr_html_()


def test_every_part_is_there(report):
    text = Outline(report.html).text
    for part in (
        "What was asked",
        "Answers",
        "Model",
        "Checks",
        "Answers seen and answers predicted",
        "Abilities",
        "Items",
        "Scores",
        "How to do it again",
    ):
        assert part in text
    for fact in (
        "bernoulli",
        "2pl",
        "Bernoulli(μ",
        "HalfNormal(2)",
        "sd_intercept of",
        report.fit.responses.data_hash,
    ):
        assert fact in text
    assert text.count("90 % equal-tailed interval") >= 4
    assert report.verdict in text
    for check in report.diagnostics:
        assert check.detail in text
        assert check.remedy in text


def test_results_stand_beside_their_intervals(report):
    text = Outline(report.html).text
    theta = report.fit.tree["posterior"]["theta"].sel(subject="model 0").values
    low, high = np.quantile(theta, [0.05, 0.95])
    assert f"{theta.mean():.2f} [{low:.2f}, {high:.2f}]" in text
    assert "0.500 [0.400, 0.600]" in text


def test_numbers_and_intervals_as_text():
    assert page.number(1234567) == "1,234,567"
    assert page.number(0.5) == "0.50"
    assert page.number(3e-9) == "3.0e-09"
    assert page.number(float("nan")) == "–"
    assert page.number(np.bool_(True)) == "yes"
    assert page.with_interval([0.3, np.nan], [-0.008, 0], [0.6, 1]) == ["0.30 [-0.01, 0.60]", "–"]
    merged = merge_intervals(pd.DataFrame({"b": [1.0], "b_lower": [0.5], "b_upper": [2.0], "n": [3]}))
    assert merged.to_dict("records") == [{"b": "1.00 [0.50, 2.00]", "n": 3}]


def test_save_and_show(report, tmp_path):
    path = report.save(tmp_path / "report.html")
    assert path.read_text(encoding="utf-8") == report.html
    assert repr(report).startswith(f"Diagnostics: {report.verdict}")
    assert report._repr_html_().startswith("<style>")
    with pytest.raises(InputError, match="no folder"):
        report.save(tmp_path / "nowhere" / "report.html")


def test_fit_report_is_this_report():
    fit = ordinary_fit(20, 10)
    assert isinstance(fit.report(), Report)
    assert fit.report().verdict == "PASS"


def test_code_to_repeat_the_fit_names_what_differs_from_the_default():
    priors = bi.ItemPriors(sd_log_a=bi.HalfNormal(0.2))
    fit = ordinary_fit(8, 6, likelihood="beta-binomial", spec=ItemResponse(curve="1pl", priors=priors))
    text = Outline(reproduce(fit)).text
    line = next(line for line in text.splitlines() if line.startswith("spec = "))
    assert eval(line.removeprefix("spec = "), {"bi": bi}) == fit.spec
    assert "method='laplace', seed=0, draws=100, chains=4" in text


def test_edges_are_reported_with_the_table_of_other_rules():
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=20), rng.normal(size=10)
    table = np.round(simulate(theta, np.ones(10), b, "beta", phi=5.0, rng=rng), 1)
    fit = fit_of(table, theta, np.ones(10), b, phi=5.0, spec=ItemResponse(likelihood="beta", squeeze=200))
    assert "squeezed with n = 200" in Outline(asked(fit)).text
    other = pd.DataFrame(
        {
            "edge_answers": 9,
            "phi": [5.0, 9.0],
            "phi_lower": [4.0, 8.0],
            "phi_upper": [6.0, 10.0],
            "largest_shift_sd": 0.1,
        },
        index=pd.Index(["squeeze, n = 200", "ordered-beta"], name="rule"),
    )
    text = Outline(Report(fit, boundary=other)._edges()).text
    assert "9.00 [8.00, 10.00]" in text
    assert "other rules for exact 0 and 1" in text


@pytest.fixture(scope="module")
def rounded():
    """Probabilities rounded to tenths, some of them exact 0 or 1, and their fit under the rule that "auto" takes."""
    rng = np.random.default_rng(0)
    mean = 1 / (1 + np.exp(rng.normal(size=12) - 2 * rng.normal(size=(16, 1))))
    table = np.round(rng.beta(8 * mean, 8 * (1 - mean)), 1)
    assert np.isin(table, (0, 1)).sum() > 10
    return bi.fit(ItemResponse(curve="1pl"), bi.Responses.from_wide(table), seed=0, draws=200)


def test_beta_02_the_report_prints_by_itself_what_other_rules_change(rounded):
    """BETA-02: the rule, its n, the exact 0 and 1, and the precision and abilities under every other rule."""
    report = rounded.report()
    edges = int(np.isin(rounded.responses.answer, (0, 1)).sum())
    table = report.boundary
    assert list(table.index) == ["ordered-beta", "zero-one-beta", "squeeze, n = 192", "squeeze, n = 1,000"]
    assert (table["edge_answers"] == edges).all()
    assert table.loc["ordered-beta", "phi_lower"] > table.loc["squeeze, n = 192", "phi_upper"]
    assert table.loc["squeeze, n = 192", "phi"] > table.loc["squeeze, n = 1,000", "phi"]
    for text in (repr(report), Outline(report.html).text):
        assert "other rules for exact 0 and 1" in text
        for rule, row in table.iterrows():
            assert rule in text
            assert f"{row['phi']:.2f} [{row['phi_lower']:.2f}, {row['phi_upper']:.2f}]" in text


@pytest.mark.parametrize("limit", ["MOST_ANSWERS", "MOST_ABILITIES"])
def test_beta_02_where_refits_take_long_the_report_names_the_call(rounded, monkeypatch, limit):
    """BETA-02: nothing is refitted unasked in a large table; the one call that does it is named."""
    monkeypatch.setattr(f"bayes_irsl.diagnostics.boundary.{limit}", 10)
    monkeypatch.setattr("bayes_irsl.report.boundary_sensitivity", lambda *a, **k: pytest.fail("refitted unasked"))
    report = rounded.report()
    assert report.boundary is None
    for text in (repr(report), Outline(report._edges()).text):
        assert "bayes_irsl.diagnostics.boundary_sensitivity(fit)" in text


def test_beta_02_an_anchored_fit_asks_for_its_bank():
    """BETA-02: refits without the bank would be on another scale."""
    table = np.array([[0.0, 0.5], [0.7, 1.0], [0.2, 0.4]])
    spec = ItemResponse(likelihood="beta", squeeze=6)
    fit = fit_of(table, np.zeros(3), np.ones(2), np.zeros(2), phi=5.0, spec=spec, attrs={"anchored_on": "x"})
    report = Report(fit)
    assert report.boundary is None
    assert "boundary_sensitivity(fit, anchor=bank)" in Outline(report._edges()).text
    with pytest.raises(InputError, match="pass it, boundary_sensitivity"):
        boundary_sensitivity(fit)


def test_reports_without_exact_0_and_1_refit_nothing(monkeypatch):
    monkeypatch.setattr("bayes_irsl.report.boundary_sensitivity", lambda *a, **k: pytest.fail("refitted unasked"))
    for likelihood in ("bernoulli", "beta-binomial", "beta"):
        assert "other rules" not in repr(Report(ordinary_fit(12, 8, likelihood=likelihood)))


def test_large_tables_stay_short():
    fit = ordinary_fit(150, 80, likelihood="beta", missing=0.3)
    source = Report(fit).html
    assert len(source) < 2e6
    rows = re.findall(r"<tr>", source)
    assert len(rows) < 350


# --- the demonstration ------------------------------------------------------------------------------------------------


def test_demo_draws_the_answers_it_says_and_keeps_them_whole():
    from bayes_irsl.demo import HELD_OUT, some_answers, spread_out

    responses = bi.load_dataset("pythia-arithmetic")
    held_out = spread_out(responses)
    assert len(set(held_out)) == HELD_OUT
    new = responses.select(subjects=held_out)
    asked = some_answers(new, 50, seed=1)
    assert np.bincount(asked.subject_index).tolist() == [50] * HELD_OUT
    whole = dict(zip(zip(new.subject_index, new.item_index, strict=True), new.answer, strict=True))
    cells = zip(asked.subject_index, asked.item_index, asked.answer, strict=True)
    assert all(whole[s, j] == y for s, j, y in cells)
    assert (asked.trials == 50).all()


def test_demo_compares_with_the_whole_table():
    import xarray as xr

    from bayes_irsl.demo import compare

    answers = bi.Responses.from_wide(np.array([[1, 1, 0, 1.0]]), subjects=["m"])
    coords = {"subject": ["m"], "benchmark": ["benchmark"]}
    dims = ("subject", "benchmark")
    values = {"score_mean": 0.6, "score_lower": 0.5, "score_upper": 0.8}
    scores = xr.Dataset({k: (dims, [[v]]) for k, v in values.items()}, coords)
    row = compare(scores, answers.select(items=["0", "2"]), answers).loc["m"]
    assert row["all answers"] == 0.75
    assert row["inside"] == "yes"
    assert row["questions"] == 2
    # Jeffreys: Beta(1.5, 1.5)
    assert row["answers alone_lower"] == pytest.approx(0.097, abs=1e-3)
    assert row["answers alone_upper"] == pytest.approx(1 - row["answers alone_lower"])


@pytest.mark.slow
def test_demo_runs(tmp_path, capsys):
    from bayes_irsl.demo import main

    table = main(["--out", str(tmp_path)])
    assert (tmp_path / "demo_report.html").stat().st_size < 2e6
    assert bi.ItemBank.load(tmp_path / "bank.nc").n_items == 12_032
    assert "inside" in capsys.readouterr().out
    ours, alone = (np.sqrt(np.mean((table[k] - table["all answers"]) ** 2)) for k in ("bank", "answers alone"))
    assert ours < alone
