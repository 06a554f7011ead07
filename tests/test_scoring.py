"""Scoring: hand-computed posteriors first, then identities, coverage, and input that must be refused."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit, logsumexp

import bayes_irsl.benchmark_scores as benchmark_scores
from bayes_irsl.bank import ItemBank
from bayes_irsl.errors import InputError
from bayes_irsl.responses import Responses
from bayes_irsl.scoring import score


def ragged(rows, n_items):
    """Responses of subjects that answered the first few items, one list of answers each."""
    table = np.full((len(rows), n_items), np.nan)
    for row, answers in zip(table, rows, strict=True):
        row[: len(answers)] = answers
    return Responses.from_wide(table, kind="binary")


def unanswered(n_items, trials=None):
    """Responses of one subject that answered nothing."""
    table = np.full((2, n_items), np.nan)
    table[1, 0] = 1
    return Responses.from_wide(table, trials=trials).select(subjects=["0"])


def log_density(bank, j, y, n, theta):
    """Log density (draw, node) of one answer by scipy."""
    eta = bank.a[:, j, None] * (theta - bank.b[:, j, None])
    c = 0.0 if bank.c is None else bank.c[:, j, None]
    mu = c + (1 - c) * expit(eta)
    phi = None if bank.phi is None else bank.phi[:, j, None]
    if bank.likelihood in ("bernoulli", "binomial"):
        return stats.binom.logpmf(y, n, mu)
    mu = np.clip(mu, 1e-12, 1 - 1e-12)
    if bank.likelihood == "beta-binomial":
        return stats.betabinom.logpmf(y, n, mu * phi, (1 - mu) * phi)
    zero = one = 0.0
    if bank.likelihood == "ordered-beta":
        zero, one = expit(-eta - bank.edges["cut_zero"][:, [j]]), expit(eta - bank.edges["cut_one"][:, [j]])
    if bank.likelihood == "zero-one-beta":
        edge, up = expit(bank.edges["logit_boundary"][:, [j]]), expit(bank.edges["logit_one"][:, [j]])
        zero, one = edge * (1 - up) + 0 * eta, edge * up + 0 * eta
    if y in (0, 1):
        return np.log(one if y == 1 else zero)
    return np.log(np.maximum(1 - zero - one, 1e-12)) + stats.beta.logpdf(y, mu * phi, (1 - mu) * phi)


def reference(bank, answer, trials=None, prior=(0.0, 1.0), low=-9.0, high=9.0):
    """Mean and sd by brute force in float64, curves averaged over draws; every item is answered."""
    theta = np.linspace(low, high, 4001)
    total = stats.norm.logpdf(theta, *prior)
    for j in range(bank.n_items):
        terms = log_density(bank, j, answer[j], 1 if trials is None else trials[j], theta)
        total = total + logsumexp(terms, axis=0) - np.log(bank.n_draws)
    weight = np.exp(total - total.max())
    weight /= weight.sum()
    mean = weight @ theta
    return mean, np.sqrt(weight @ (theta - mean) ** 2)


def loose_bank(rng, n_items, n_draws=40, **options):
    """Bank whose items are known up to a wide posterior."""
    b = rng.normal(size=n_items) + 0.4 * rng.normal(size=(n_draws, n_items))
    a = np.exp(0.3 * rng.normal(size=n_items) + 0.4 * rng.normal(size=(n_draws, n_items)))
    return ItemBank.from_parameters(a, b, **options)


RASCH = ItemBank.from_parameters(np.ones(1400), 0.0)


@pytest.mark.parametrize(
    ("answers", "mean", "sd"),
    [
        pytest.param([1] * 5, 1.238, 0.739, id="BIN-05 all right"),
        pytest.param([0] * 5, -1.238, 0.739, id="BIN-05 all wrong"),
        pytest.param([1] * 1000, 5.312, 0.410, id="BIN-05 1,000 right"),
        pytest.param([1] * 700 + [0] * 700, 0.0, 0.0534, id="BIN-06 half right"),
        pytest.param([1] * 840 + [0] * 560, 0.4046, 0.0545, id="BIN-06 60 % right"),
        pytest.param([1] * 1050 + [0] * 350, 1.0954, 0.0616, id="BIN-06 75 % right"),
        pytest.param([1] * 4 + [0] * 2, 0.426, 0.658, id="DATA-05 missing"),
        pytest.param([1] * 4 + [0] * 6, -0.302, 0.552, id="DATA-05 counted wrong"),
        pytest.param([], 0.0, 1.0, id="no answers"),
        pytest.param([1], 0.413242, 0.910621, id="one answer"),
    ],
)
def test_known_posteriors_of_rasch_items(answers, mean, sd):
    responses = ragged([answers], 1400) if answers else unanswered(1400)
    out = score(RASCH, responses, benchmarks=False)
    assert out["ability_mean"].item() == pytest.approx(mean, abs=6e-4)
    assert out["ability_sd"].item() == pytest.approx(sd, abs=6e-4)
    assert out["n_answers"].item() == len(answers)


def test_cat_01_ability_never_rises_after_wrong_answers():
    bank = ItemBank.from_parameters(1.0, [2.00, 2.31, 2.61, 2.91, 3.10])
    out = score(bank, ragged([[0] * n for n in range(1, 6)], 5), benchmarks=False)
    np.testing.assert_allclose(out["ability_mean"], [-0.137, -0.224, -0.283, -0.323, -0.355], atol=6e-4)
    np.testing.assert_allclose(out["ability_sd"][[0, 4]], [0.951, 0.879], atol=6e-4)


def test_data_05_not_reached_is_missing_unless_the_user_says_wrong():
    table = pd.DataFrame([[1, 1, 1, 1, 0, 0, None, None, None, None]], dtype=float)
    bank = ItemBank.from_parameters(np.ones(10), 0.0)
    missing = score(bank, Responses.from_wide(table, kind="binary"))
    wrong = score(bank, Responses.from_wide(table, kind="binary", missing_as="wrong"))
    assert missing["ability_mean"].item() == pytest.approx(0.426, abs=6e-4)
    assert wrong["ability_mean"].item() == pytest.approx(-0.302, abs=6e-4)
    assert wrong["score_mean"].item() == pytest.approx(0.4, abs=1e-9)


def test_data_06_empty_rows_keep_their_place_and_the_prior():
    table = np.ones((5, 5))
    table[:, ::2] = 0
    table[2], table[:, 1] = np.nan, np.nan
    responses = Responses.from_wide(table, kind="binary")
    out = score(ItemBank.from_parameters(np.ones(5), 0.0), responses)
    assert out["subject"].values.tolist() == ["0", "1", "2", "3", "4"]
    assert out["ability_mean"][2].item() == pytest.approx(0, abs=1e-4)
    assert out["ability_sd"][2].item() == pytest.approx(1, abs=1e-4)
    assert out["n_answers"].values.tolist() == [4, 4, 0, 4, 4]
    np.testing.assert_allclose(out["ability_lower"][2], stats.norm.ppf(0.05), atol=1e-3)


@pytest.mark.parametrize("prior", [(0.0, 1.0), (3.0, 0.5), (-40.0, 10.0)])
def test_prior_is_returned_where_there_are_no_answers(prior):
    out = score(RASCH, unanswered(1400), prior=prior, mass=0.5, benchmarks=False)
    assert out["ability_mean"].item() == pytest.approx(prior[0], abs=1e-3 * prior[1])
    assert out["ability_upper"].item() == pytest.approx(stats.norm.ppf(0.75, *prior), abs=2e-3 * prior[1])


CASES = {
    "bernoulli": {},
    "bernoulli 3pl": {"c": np.tile([0.0, 0.2], 10)},
    "binomial": {"likelihood": "binomial"},
    "beta-binomial": {"likelihood": "beta-binomial", "phi": 6.0},
    "beta": {"likelihood": "beta", "phi": 9.0},
    "ordered-beta": {
        "likelihood": "ordered-beta",
        "phi": 9.0,
        "edges": {"cut_zero": np.full((40, 1), 2.0), "cut_one": np.full((40, 1), 2.5)},
    },
    "zero-one-beta": {
        "likelihood": "zero-one-beta",
        "phi": 9.0,
        "edges": {"logit_boundary": np.full((40, 1), -2.0), "logit_one": np.full((40, 1), 0.3)},
    },
}


@pytest.mark.parametrize("name", CASES)
def test_every_likelihood_agrees_with_brute_force_in_float64(name):
    rng = np.random.default_rng(3)
    bank = loose_bank(rng, 20, **CASES[name])
    mu = expit(rng.normal(size=20))
    trials = np.full(20, 7) if "binomial" in name else None
    answer = {"bernoulli": mu > 0.5, "binomial": rng.binomial(7, mu)}.get(name.split()[0].split("-")[-1], mu)
    answer = np.array(answer, dtype=np.float32).astype(float)
    if name in ("ordered-beta", "zero-one-beta"):
        answer[:2] = 0, 1
    out = score(bank, Responses.from_wide(answer[None], trials=trials), benchmarks=False)
    mean, sd = reference(bank, answer, trials, low=-5.0, high=5.0)
    assert out["ability_mean"].item() == pytest.approx(mean, abs=5e-4)
    assert out["ability_sd"].item() == pytest.approx(sd, abs=5e-4)


def test_twelve_thousand_answers_keep_their_digits():
    rng = np.random.default_rng(4)
    a, b = np.exp(0.4 * rng.normal(size=12_000)), rng.normal(size=12_000)
    answer = (rng.random(12_000) < expit(a * (1.7 - b))).astype(float)
    out = score(ItemBank.from_parameters(a, b), Responses.from_wide(answer[None]), benchmarks=False)
    theta = np.linspace(1.55, 1.85, 801)
    log_posterior = np.array([-np.logaddexp(0, (1 - 2 * answer) * a * (t - b)).sum() - t**2 / 2 for t in theta])
    weight = np.exp(log_posterior - log_posterior.max())
    weight /= weight.sum()
    mean = weight @ theta
    sd = np.sqrt(weight @ (theta - mean) ** 2)
    assert 0.01 < sd < 0.03
    assert out["ability_mean"].item() == pytest.approx(mean, abs=0.005 * sd)
    assert out["ability_sd"].item() == pytest.approx(sd, rel=0.005)


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        pytest.param(40.0, [0.31], [1.0], id="one step-like item"),
        pytest.param(25.0, [-2.0, -1.0, 0.0, 0.4, 1.0], [1.0, 1, 1, 0, 0], id="steep items pin it down"),
        pytest.param(3.0, [9.0] * 30, [1.0] * 30, id="far above every other ability"),
        pytest.param(5.0, [-3.0] * 8 + [3.0] * 8, [0.0] * 8 + [1.0] * 8, id="two groups that contradict"),
        pytest.param(0.01, [4.0, -4.0], [1.0, 0.0], id="items that say nothing"),
    ],
)
def test_grid_adapts_to_extreme_items(a, b, answer):
    bank = ItemBank.from_parameters(a, b)
    out = score(bank, Responses.from_wide(np.array([answer])), benchmarks=False)
    mean, sd = reference(bank, answer, low=-14.0, high=14.0)
    assert out["ability_mean"].item() == pytest.approx(mean, abs=2e-3 * sd)
    assert out["ability_sd"].item() == pytest.approx(sd, rel=2e-3)


def test_two_peaks_are_both_kept():
    """Either the items are hard and the subject is at their level, or they are easy and it had bad luck."""
    b = np.concatenate([np.full((36, 1), -3.0), np.full((4, 1), 4.0)]) + np.zeros((40, 12))
    bank = ItemBank.from_parameters(np.full((40, 12), 6.0), b)
    answer = np.array([1.0] * 6 + [0.0] * 6)
    out = score(bank, Responses.from_wide(answer[None]), benchmarks=False)
    mean, sd = reference(bank, answer)
    assert sd > 1.1
    assert out["ability_mean"].item() == pytest.approx(mean, abs=2e-3 * sd)
    assert out["ability_sd"].item() == pytest.approx(sd, rel=2e-3)


def test_cat_11_item_uncertainty_widens_the_posterior():
    rng = np.random.default_rng(5)
    bank = loose_bank(rng, 200)
    plug_in = ItemBank.from_parameters(np.exp(np.log(bank.a).mean(0)), bank.b.mean(0))
    responses = Responses.from_wide((rng.random((20, 200)) < 0.6).astype(float))
    honest, point = (score(x, responses, benchmarks=False)["ability_sd"] for x in (bank, plug_in))
    assert (honest > 1.05 * point).all()


def test_subjects_do_not_depend_on_their_company_and_seeds_repeat():
    rng = np.random.default_rng(6)
    bank = loose_bank(rng, 60, items=pd.DataFrame({"benchmark": ["x"] * 20 + ["y"] * 40}, index=map(str, range(60))))
    table = (rng.random((30, 60)) < 0.5).astype(float)
    table[rng.random((30, 60)) < 0.6] = np.nan
    responses = Responses.from_wide(table, kind="binary")
    together = score(bank, responses, seed=7, draws=5)
    alone = score(bank, responses.select(subjects=["11"]), seed=7, draws=5)
    for name in together.data_vars:
        np.testing.assert_allclose(together[name].sel(subject=["11"]), alone[name], atol=1e-6)
    assert score(bank, responses, seed=7, draws=5).identical(together)
    assert not score(bank, responses, seed=8, draws=5)["score"].equals(together["score"])


def test_answered_items_count_as_observed():
    bank = ItemBank.from_parameters([1.0, 1.0], 0.0)
    full = score(bank, Responses.from_wide(np.array([[1.0, 0.0]])))
    assert full["score_mean"].item() == 0.5
    assert full["score_sd"].item() == 0
    assert (full["score_lower"].item(), full["score_upper"].item()) == (0.5, 0.5)
    half = score(bank, Responses.from_wide(np.array([[1.0, np.nan]]), kind="binary"))
    theta = np.linspace(-9, 9, 4001)
    weight = stats.norm.pdf(theta) * expit(theta)
    p = (weight * expit(theta)).sum() / weight.sum()
    assert half["score_mean"].item() == pytest.approx((1 + p) / 2, abs=1e-3)
    assert half["score_sd"].item() == pytest.approx(np.sqrt(p * (1 - p)) / 2, abs=1e-3)
    assert {half["score_lower"].item(), half["score_upper"].item()} == {0.5, 1.0}
    assert half["n_answered"].item() == 1


@pytest.mark.parametrize(("name", "trials"), [("bernoulli", None), ("beta-binomial", 4), ("beta", None)])
def test_predicted_scores_agree_with_simulated_answers(name, trials):
    rng = np.random.default_rng(8)
    options = {} if name == "bernoulli" else {"phi": 5.0}
    frame = pd.DataFrame({"benchmark": ["x"] * 15 + ["y"] * 5, "trials": trials or 1}, index=map(str, range(20)))
    bank = loose_bank(rng, 20, items=frame, likelihood=name, **options)
    out = score(bank, unanswered(20, trials), draws=4000)
    n = 40_000
    theta, draw = rng.normal(size=(n, 1)), rng.integers(40, size=n)
    mu = expit(bank.a[draw] * (theta - bank.b[draw]))
    y = {
        "bernoulli": lambda: rng.binomial(1, mu),
        "beta-binomial": lambda: rng.binomial(4, rng.beta(5 * mu, 5 * (1 - mu))) / 4,
        "beta": lambda: rng.beta(5 * mu, 5 * (1 - mu)),
    }[name]()
    for benchmark, values in (("x", y[:, :15].mean(1)), ("y", y[:, 15:].mean(1))):
        got = out.sel(benchmark=benchmark)
        assert got["score_mean"].item() == pytest.approx(values.mean(), abs=0.006)
        assert got["score_sd"].item() == pytest.approx(values.std(), rel=0.02)
        grid = np.arange(0.05, 1, 0.1)
        below = [(x[:, None] < grid).mean(0) for x in (got["score"].values[0], values)]
        np.testing.assert_allclose(*below, atol=0.03)


def test_table_and_direct_sums_agree(monkeypatch):
    rng = np.random.default_rng(9)
    table = np.full((4, 300), np.nan)
    table[:, :30] = rng.random((4, 30)) < [[0.1], [0.4], [0.7], [1.0]]
    responses = Responses.from_wide(table, kind="binary")
    draws = {"a": 2 * np.exp(0.4 * rng.normal(size=(40, 300))), "b": rng.normal(size=(40, 300))}
    out = {}
    for limit in (10, 1000):
        monkeypatch.setattr(benchmark_scores, "_DIRECT", limit)
        bank = ItemBank.from_parameters(**draws)
        out[limit] = score(bank, responses)
        assert (("sums", 0) in bank.memo) == (limit == 10)
    np.testing.assert_allclose(out[10]["score_mean"], out[1000]["score_mean"], atol=1e-4)
    np.testing.assert_allclose(out[10]["score_sd"], out[1000]["score_sd"], rtol=1e-3)


def test_population_score_is_about_new_items():
    rng = np.random.default_rng(10)
    bank = ItemBank.from_parameters(np.ones(40), rng.normal(size=40))
    responses = Responses.from_wide((rng.random((1, 40)) < 0.6).astype(float))
    here, everywhere = score(bank, responses), score(bank, responses, population=True)
    assert here["score_sd"].item() == 0
    mu = expit(here["ability_mean"].item() - bank.b[0])
    assert everywhere["score_mean"].item() == pytest.approx(mu.mean(), abs=0.01)
    assert everywhere["score_sd"].item() > mu.std() / np.sqrt(40)
    assert "new items" in everywhere.attrs["score"]


def test_draws_are_draws_of_the_posterior():
    out = score(RASCH, ragged([[1] * 30 + [0] * 10], 1400), draws=4000, mass=0.8)
    assert out["ability"].sizes == {"subject": 1, "draw": 4000}
    assert out["ability"].std().item() == pytest.approx(out["ability_sd"].item(), rel=0.01)
    assert out["score"].mean().item() == pytest.approx(out["score_mean"].item(), abs=2e-3)
    inside = (out["ability"] > out["ability_lower"]) & (out["ability"] < out["ability_upper"])
    assert inside.mean().item() == pytest.approx(0.8, abs=0.01)
    assert out.attrs["mass"] == 0.8
    assert out.attrs["interval"] == "equal-tailed"
    assert abs(np.corrcoef(out["ability"][0, :-1], out["ability"][0, 1:])[0, 1]) < 0.05


def test_abilities_of_several_dimensions_are_scored_one_by_one():
    rng = np.random.default_rng(11)
    frame = pd.DataFrame(
        {"benchmark": ["x"] * 8 + ["y"] * 8, "dimension": ["p", "q"] * 8}, index=[f"i{k}" for k in range(16)]
    )
    bank = loose_bank(rng, 16, items=frame)
    responses = Responses.from_wide((rng.random((6, 16)) < 0.6).astype(float), items=list(frame.index))
    both = score(bank, responses, draws=3)
    assert both["ability_mean"].dims == ("subject", "dimension")
    assert both["score"].dims == ("subject", "benchmark", "draw")
    for name in ("p", "q"):
        keep = (frame["dimension"] == name).to_numpy()
        one = score(bank.select(keep), responses.select(items=keep), benchmarks=False)
        np.testing.assert_allclose(both["ability_mean"].sel(dimension=name), one["ability_mean"], atol=1e-5)


def calibrated(rng, n_items, theta, n_draws=40):
    """True (intercept, log a) of some items, and the bank that subjects of abilities theta leave of them."""
    centre, precision = np.array([0.2, 0.0]), np.diag([1 / 1.3**2, 1 / 0.3**2])
    truth = centre + rng.normal(size=(n_items, 2)) / np.sqrt(np.diag(precision))
    slope = np.exp(truth[:, 1:])
    p = expit(truth[:, :1] + slope * theta)
    jacobian = np.stack([np.ones_like(p), slope * theta], -1)
    fisher = np.einsum("js,jsk,jsl->jkl", p * (1 - p), jacobian, jacobian) + 1e-3 * np.eye(2)
    noise = np.linalg.solve(np.linalg.cholesky(fisher).swapaxes(1, 2), rng.normal(size=(n_items, 2, 1)))
    evidence = fisher @ (truth[..., None] + noise) + (precision @ centre)[:, None]
    mean, tril = (
        np.linalg.solve(fisher + precision, evidence),
        np.linalg.cholesky(np.linalg.inv(fisher + precision)),
    )
    draws = mean[..., 0] + np.einsum("jkl,djl->djk", tril, rng.normal(size=(n_draws, n_items, 2)))
    a = np.exp(draws[..., 1])
    bank = ItemBank.from_parameters(a, -draws[..., 0] / a, theta_range={"ability": (theta.min(), theta.max())})
    return truth, bank


def test_scale_08_beyond_calibration_is_flagged_and_covered():
    rng = np.random.default_rng(12)
    n_items, n_subjects = 400, 120
    truth, bank = calibrated(rng, n_items, np.linspace(-2, 1, 40))
    theta = np.repeat([2.0, 0.0], n_subjects)[:, None]
    full = (rng.random((2 * n_subjects, n_items)) < expit(truth[:, 0] + np.exp(truth[:, 1]) * theta)).astype(float)
    asked = np.argsort(rng.random(full.shape), axis=1)[:, :50]
    table = np.full_like(full, np.nan)
    np.put_along_axis(table, asked, np.take_along_axis(full, asked, 1), 1)
    out = score(bank, Responses.from_wide(table, kind="binary"), prior=(0.0, 3.0)).isel(benchmark=0)
    share = full.mean(1)
    inside = (share >= out["score_lower"].values) & (share <= out["score_upper"].values)
    assert 0.82 <= inside[:n_subjects].mean() <= 0.97
    assert 0.82 <= inside[n_subjects:].mean() <= 0.97
    ours = np.abs(out["score_mean"].values - share)
    plain = np.abs(np.nanmean(table, axis=1) - share)
    assert ours.mean() < plain.mean()
    assert out["beyond_calibration_range"].values[:n_subjects].mean() > 0.9
    assert out["beyond_calibration_range"].values[n_subjects:].mean() < 0.05


def test_cat_09_stated_error_is_right_for_items_chosen_by_averaged_information():
    """Half of the slopes are known to sd 0.5. Choosing and scoring by point estimates is too sure."""
    rng = np.random.default_rng(13)
    n_items, n_subjects, n_draws = 200, 200, 40
    loose = np.arange(n_items) < 100
    stated, real, share = ({"averaged": [], "point": []} for _ in range(3))
    for _ in range(5):
        spread = np.where(loose, 0.5, 1e-3)
        truth = np.exp(spread * rng.normal(size=n_items) - 0.1 * loose)
        estimate = np.exp(np.log(truth) + spread * rng.normal(size=n_items))
        centre, sd = (np.log(estimate) - 0.1 * loose) / 2, spread / np.sqrt(2)  # prior and data weigh alike
        a = np.exp(np.where(loose, centre, np.log(truth)) + sd * rng.normal(size=(n_draws, n_items)))
        b, theta = rng.normal(size=n_items), rng.normal(size=n_subjects)
        nodes = np.linspace(-2, 2, 9)[:, None, None]
        for name, slopes in (("averaged", a), ("point", estimate[None])):
            mu = expit(slopes * (nodes - b))
            chosen = np.argsort(-(slopes**2 * mu * (1 - mu)).mean((0, 1)))[:20]
            bank = ItemBank.from_parameters(slopes[:, chosen], b[chosen])
            answer = rng.random((n_subjects, 20)) < expit(truth[chosen] * (theta[:, None] - b[chosen]))
            out = score(bank, Responses.from_wide(answer.astype(float)), benchmarks=False)
            stated[name].append((out["ability_sd"].values ** 2).mean())
            real[name].append(((out["ability_mean"].values - theta) ** 2).mean())
            share[name].append(loose[chosen].mean())
    ratio = {name: np.sqrt(np.mean(stated[name]) / np.mean(real[name])) for name in stated}
    assert np.mean(share["point"]) > 0.8
    assert 0.9 < ratio["averaged"] < 1.1
    assert ratio["point"] < 0.9


def test_bin_07_items_without_variation_do_not_change_the_ranking():
    rng = np.random.default_rng(14)
    a, b = np.exp(0.4 * rng.normal(size=40)), rng.normal(size=40)
    theta = rng.normal(size=30)
    table = (rng.random((30, 40)) < expit(a * (theta[:, None] - b))).astype(float)
    table[:, 0], table[:, 1] = 1, 0
    a_draws = np.broadcast_to(a, (40, 40)).copy()
    b_draws = np.broadcast_to(b, (40, 40)).copy()
    b_draws[:, 0], b_draws[:, 1] = rng.normal(-3.2, 0.81, 40), rng.normal(3.27, 0.77, 40)
    a_draws[:, :2] = 1.75
    bank, responses = ItemBank.from_parameters(a_draws, b_draws), Responses.from_wide(table)
    whole = score(bank, responses, benchmarks=False)["ability_mean"]
    without = [str(j) for j in range(2, 40)]
    reduced = score(bank.select(without), responses.select(items=without), benchmarks=False)["ability_mean"]
    assert stats.spearmanr(whole, reduced).statistic > 0.999


def test_bin_12_predicted_score_rises_with_ability():
    bank = ItemBank.from_parameters(np.linspace(0.2, 2, 10), np.zeros(10))
    responses = ragged([[1] * n + [0] * (3 - n) for n in range(4)], 10)
    out = score(bank, responses)
    assert (np.diff(out["ability_mean"]) > 0).all()
    assert (np.diff(out["score_mean"].values.ravel()) > 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mass": 1.5}, "mass = 1.5"),
        ({"draws": -1}, "draws = -1"),
        ({"draws": 2.5}, "draws = 2.5"),
        ({"seed": -1}, "seed = -1"),
        ({"prior": (0.0, 0.0)}, "positive sd"),
        ({"prior": (np.nan, 1.0)}, "positive sd"),
        ({"responses": np.ones((2, 2))}, "from_wide"),
        ({"bank": None}, "ItemBank"),
    ],
)
def test_options_that_cannot_be_used(change, message):
    arguments = {"bank": RASCH, "responses": ragged([[1]], 1400), **change}
    with pytest.raises(InputError, match=message):
        score(arguments.pop("bank"), arguments.pop("responses"), **arguments)


def test_unknown_items_are_named_with_their_neighbours():
    bank = ItemBank.from_parameters(1.0, [0.0, 1.0], items=["algebra-01", "algebra-02"])
    responses = Responses.from_wide(np.array([[1.0, 0.0]]), items=["algebra-01", "algebra-2"])
    with pytest.raises(InputError, match=r"algebra-2.*algebra-02"):
        score(bank, responses)
    unasked = Responses.from_wide(np.array([[1.0, np.nan]]), items=["algebra-01", "algebra-2"], kind="binary")
    assert score(bank, unasked)["n_answers"].item() == 1


def test_answers_of_another_kind_are_refused():
    counts = Responses.from_wide(np.array([[2.0, 1.0]]), trials=3)
    shares = Responses.from_wide(np.array([[0.3, 0.7]]))
    for responses in (counts, shares):
        with pytest.raises(InputError, match="bernoulli"):
            score(ItemBank.from_parameters(1.0, [0.0, 1.0]), responses)
    beta = ItemBank.from_parameters(1.0, [0.0, 1.0], phi=10.0, likelihood="beta")
    edge = Responses.from_wide(np.array([[0.3, 1.0]]))
    with pytest.raises(InputError, match=r"'0'.*'1'.*ordered-beta"):
        score(beta, edge)
    squeezed = ItemBank.from_parameters(1.0, [0.0, 1.0], phi=10.0, likelihood="beta", squeeze=50)
    assert np.isfinite(score(squeezed, edge)["ability_mean"].item())


def test_binary_answers_are_counts_of_one_trial():
    binary = Responses.from_wide(np.array([[1.0, 0.0, 1.0]]))
    arguments = ([1.0, 2.0, 0.5], [0.0, 1.0, 0.5])
    counts = score(ItemBank.from_parameters(*arguments, likelihood="binomial"), binary, benchmarks=False)
    plain = score(ItemBank.from_parameters(*arguments), binary, benchmarks=False)
    np.testing.assert_allclose(counts["ability_mean"], plain["ability_mean"], atol=1e-5)
