"""The two-step law: recovery by hand, and SCALE-01 (an optimiser that stops early)."""

import numpy as np
import pandas as pd
import pytest

from bayes_irsl.baselines.two_step import DELTA, fit_loss_law, two_step
from bayes_irsl.errors import InputError


def chinchilla(n=240, noise=0.01, seed=0):
    rng = np.random.default_rng(seed)
    x = np.c_[rng.uniform(8, 10.5, n), rng.uniform(9, 12, n)]
    loss = 1.8 + 480 * 10 ** (-0.348 * x[:, 0]) + 2085 * 10 ** (-0.366 * x[:, 1])
    return x, loss * np.exp(noise * rng.standard_normal(n)), loss


def huber(residual):
    size = np.abs(residual)
    return float(np.where(size <= DELTA, 0.5 * size**2, DELTA * (size - 0.5 * DELTA)).sum())


@pytest.mark.parametrize("seed", range(3))
def test_scale_01_the_sum_is_minimised_to_the_end(seed):
    """SCALE-01: below the objective of the truth, and no other start of a wide grid does better by 2 %."""
    x, loss, true = chinchilla(seed=seed)
    law = fit_loss_law(x, loss)
    assert law.objective == pytest.approx(huber(np.log(law(x) / loss)), rel=1e-6)
    assert law.objective <= huber(np.log(true / loss))
    assert law.agreed
    np.testing.assert_allclose(law(x), true, rtol=0.01)


def test_the_law_without_noise_comes_back():
    x, _, true = chinchilla(noise=0.0)
    law = fit_loss_law(x, true)
    np.testing.assert_allclose([np.exp(law.e), *law.rate], [1.8, 0.348, 0.366], rtol=0.02)


def test_both_steps_forecast_the_next_size():
    rng = np.random.default_rng(1)
    compute = np.geomspace(1e18, 1e23, 16)
    loss = 1.7 + 2.0 * (compute / 1e18) ** -0.12
    score = 0.25 + 0.6 / (1 + np.exp(4 * (loss - 2.6)))
    table = pd.DataFrame(
        {"compute": compute, "loss": loss * np.exp(0.003 * rng.normal(size=16)), "score": score, "chance": 0.25}
    )
    found = two_step(table[:12], table[12:], rng, 200)
    assert found.shape == (200, 4)
    np.testing.assert_allclose(found.mean(0), score[12:], atol=0.05)


def test_what_the_law_needs():
    with pytest.raises(InputError, match="2 losses for 3 parameters"):
        fit_loss_law(np.zeros((2, 1)), np.ones(2))
    with pytest.raises(InputError, match="positive"):
        fit_loss_law(np.zeros((4, 1)), np.array([1.0, -1, 2, 3]))
    with pytest.raises(InputError, match="column 'loss'"):
        two_step(pd.DataFrame({"compute": [1.0]}), pd.DataFrame({"compute": [1.0]}), np.random.default_rng(0), 5)
