"""What groups favour among the questions asked: its size is found, and abilities on all questions allow for it."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.special import expit

import bayes_irsl as bi
from bayes_irsl.covariates import layout
from bayes_irsl.errors import InputError
from bayes_irsl.question_error import _within_less_between, less_shared, shared_question_error

SIZES = np.array([1e7, 3e7, 1e8, 3e8, 1e9])


def suite(favour, seed=0, groups=12, questions=40, trials=30):
    """Groups with equal abilities at every size, each favouring questions by N(0, favour) logits."""
    rng = np.random.default_rng(seed)
    group, size = (v.ravel() for v in np.meshgrid(np.arange(groups), SIZES, indexing="ij"))
    theta = np.log10(size / 1e8)
    b = rng.normal(0, 1, questions)
    eta = theta[:, None] - b + favour * rng.standard_normal((groups, questions))[group]
    subjects = pd.DataFrame(
        {"family": [f"g{g}" for g in group], "compute": 120 * size**2},
        index=pd.Index([f"g{g}/{s:.0e}" for g, s in zip(group, size, strict=True)], name="subject"),
    )
    counts = pd.DataFrame(rng.binomial(trials, expit(eta)), index=subjects.index).add_prefix("q")
    return bi.Responses.from_wide(counts, trials=trials, subjects=subjects), theta, b


def known_posterior(r, theta, b):
    """The truth as a posterior of one draw, so that only the estimator is looked at."""

    def one(values, dim):
        return (("chain", "draw", dim), values[None, None])

    return xr.Dataset({"theta": one(theta, "subject"), "a": one(np.ones(len(b)), "item"), "b": one(b, "item")})


def test_pairs_by_hand():
    """Three subjects: two of a group, of different runs, and one of another."""
    moved = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]])
    within = 1 * 3 + 2 * -1
    between = np.mean([1 * 0.5 + 2 * 0.5, 3 * 0.5 - 0.5])
    found = _within_less_between(moved, np.array([0, 0, 1]), np.array([0, 1, 2]))
    assert found == pytest.approx(max(within - between, 0))
    assert _within_less_between(-moved[[0, 1, 1]], np.array([0, 1, 1]), np.array([0, 1, 2])) == pytest.approx(10 - 1)


@pytest.mark.parametrize("favour", [0.0, 0.5])
def test_its_size_is_found(favour):
    """Var of the mean over questions of what a group favours, weighted by information; none where there is none."""
    found, expected = [], []
    for seed in range(12):
        r, theta, b = suite(favour, seed)
        place = layout(bi.AbilityTrajectory(pool="family", run=None), r.subjects)
        found.append(shared_question_error(known_posterior(r, theta, b), np.zeros(40, int), r, place)[0])
        weight = expit(theta[:, None] - b) * expit(b - theta[:, None])
        weight = (weight / weight.sum(1, keepdims=True)).reshape(12, 5, -1)
        expected.append(favour**2 * np.mean([(w[0] * w[-1]).sum() for w in weight]))
    error = np.std(found) / np.sqrt(len(found))
    if favour:
        assert abs(np.mean(found) - np.mean(expected)) < 4 * error + 0.15 * np.mean(expected)
    else:
        assert np.mean(found) < 0.0005


def test_groups_that_only_favour_questions_are_not_told_apart():
    """Equal abilities on all questions, luck with the forty that are asked: sureness of who is better falls."""
    r, _, _ = suite(0.8, seed=3)
    sure = {}
    for questions in ("given", "population"):
        spec = bi.AbilityTrajectory(pool="family", run=None, questions=questions)
        fit = bi.fit(spec, r, seed=0, draws=400)
        ahead = bi.forecast(fit, compute=1e21, pool=[f"g{g}" for g in range(12)], kind="ability")["ability"]
        draws = ahead.to_numpy()[:, :, 0, 0]
        i, j = np.triu_indices(12, 1)
        p = (draws[:, i] > draws[:, j]).mean(0)
        sure[questions] = np.mean(np.maximum(p, 1 - p) > 0.95)
    assert sure["given"] > 0.2
    assert sure["population"] < 0.5 * sure["given"]


def test_it_says_what_it_needs():
    with pytest.raises(InputError, match=r'questions="population" is about groups of subjects'):
        bi.AbilityTrajectory(questions="population")
    with pytest.raises(InputError, match="questions = 'all'"):
        bi.AbilityTrajectory(pool="family", questions="all")
    r, _, _ = suite(0.0, groups=1)
    with pytest.raises(InputError, match="needs two groups or more"):
        bi.fit(bi.AbilityTrajectory(pool="family", run=None, questions="population"), r)


def test_what_is_shared_is_taken_out_of_each_ones_own_error():
    """own + shared = error where that leaves enough; draws scatter by what is left; a fifth stays in any case."""
    rng = np.random.default_rng(0)
    mean = np.array([[1.0, -1.0], [0.0, 2.0]])
    error = np.array([[[0.5, 0.1], [0.1, 0.4]], [[0.3, -0.05], [-0.05, 0.6]]])
    shared = np.array([0.1, 0.2])
    draws = mean + np.einsum("sde,nse->nsd", np.linalg.cholesky(error), rng.standard_normal((50_000, 2, 2)))
    own, moved = less_shared(error, draws, mean, shared)
    np.testing.assert_allclose(own + np.diag(shared), error, atol=1e-12)
    for s in range(2):
        np.testing.assert_allclose(np.cov(moved[:, s].T), own[s], atol=0.01)
    np.testing.assert_allclose(moved.mean(0), mean, atol=0.01)
    all_shared, _ = less_shared(error[:, :1, :1], draws[..., :1], mean[:, :1], np.array([9.0]))
    np.testing.assert_allclose(all_shared, 0.2 * error[:, :1, :1])
