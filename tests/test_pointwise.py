"""Log likelihood on demand: against the formula, in blocks, through az.loo, and refused where it would not fit."""

import warnings

import arviz as az
import numpy as np
import pytest
import xarray as xr
from scipy import stats
from scipy.special import expit

import bayes_irsl as bi
from bayes_irsl.diagnostics import pointwise
from bayes_irsl.errors import InputError


@pytest.fixture(scope="module", params=["binomial", "beta"])
def fit(request):
    responses, _ = bi.simulate_responses(8, 12, likelihood=request.param, missing=0.2, mean_intercept=-1.0)
    return bi.fit(bi.ItemResponse(request.param), responses, draws=400)


def test_values_are_the_densities(fit, monkeypatch):
    monkeypatch.setattr("bayes_irsl.diagnostics.predict.BLOCK", 1000)  # several blocks
    values = bi.log_likelihood(fit)
    r, p = fit.responses, fit.tree.posterior.to_dataset().stack(sample=("chain", "draw")).transpose("sample", ...)
    assert values.shape == (1, 400, r.n_obs)
    theta, a, b = (p[name].values.astype(float) for name in ("theta", "a", "b"))
    mean = expit(a[:, r.item_index] * (theta[:, r.subject_index] - b[:, r.item_index]))
    if fit.spec.likelihood == "binomial":
        expected = stats.binom.logpmf(r.answer, r.trials, mean)
    else:
        phi = p["phi"].values[:, None]
        expected = stats.beta.logpdf(r.answer, mean * phi, (1 - mean) * phi)
    np.testing.assert_allclose(values[0], expected, rtol=2e-4, atol=2e-4)
    assert str(values.subject.values[0]) == r.subjects.index[r.subject_index[0]]


def test_loo_of_arviz_takes_it(fit):
    values = bi.log_likelihood(fit)
    tree = xr.DataTree.from_dict({"posterior": fit.tree.posterior.to_dataset(), "log_likelihood": values.to_dataset()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a subject's 10 answers make influential cells, of which loo warns
        elpd = float(az.loo(tree, var_name="answer", reff=1.0).elpd)
    in_sample = float(np.log(np.exp(values.astype(float)).mean(("chain", "draw"))).sum())
    assert in_sample - 60 < elpd < in_sample


def test_too_many_numbers_are_refused(fit, monkeypatch):
    monkeypatch.setattr(pointwise, "LARGEST", 1000)
    with pytest.raises(InputError, match=r"ask for at most \d+ draws, or sum over log_likelihood_blocks"):
        bi.log_likelihood(fit)
