"""Complaints of users about data and engine: empty rows, codes, memory, chains, seeds; with real fits."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_irsl as bi

RASCH = bi.ItemResponse(curve="1pl")


def stacked(fit, name):
    values = fit.tree.posterior[name].values
    return values.reshape(-1, *values.shape[2:])


def square(size, seed):
    """A table of coin flips."""
    return bi.Responses.from_wide(np.random.default_rng(seed).integers(0, 2, (size, size)).astype(float))


def run(program, *arguments):
    """Standard output of a program in a process of its own, where warnings are errors and silence is expected."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# --- memory -----------------------------------------------------------------------------------------------------------


def compiled(caplog, work):
    """Names of the programs that are compiled while ``work`` runs."""
    caplog.clear()
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        work()
    lines = [record.getMessage() for record in caplog.records]
    return [line.split()[4] for line in lines if line.startswith("Finished XLA compilation of")]


@pytest.mark.parametrize("options", [{"method": "laplace", "draws": 40}, {"method": "nuts", "draws": 20, "warmup": 20}])
def test_eng_03_other_answers_of_one_shape_compile_nothing_large(caplog, options):
    """ENG-03: what fills memory over many fits are programs compiled anew; a second fit reuses those of the first.

    One small program is left, the loop over draws of the log prior.
    """
    work = [lambda seed=seed: bi.fit(RASCH, square(20, seed), seed=seed, **options) for seed in (0, 1)]
    assert len(compiled(caplog, work[0])) > 5
    assert len(compiled(caplog, work[1])) <= 1


MANY_FITS = """
import sys
from pathlib import Path
import numpy as np
import bayes_irsl as bi

for i in range(int(sys.argv[1])):
    size = 20 + i % 5
    y = np.random.default_rng(i).integers(0, 2, (size, size)).astype(float)
    bi.fit(bi.ItemResponse(curve="1pl"), bi.Responses.from_wide(y), seed=i, draws=40)
    if i + 1 == 20 or i + 1 == int(sys.argv[1]):
        print(int(Path("/proc/self/statm").read_text().split()[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_eng_03_memory_after_200_fits():
    """ENG-03: 200 Rasch fits of 20 x 20 to 24 x 24: resident memory within 20 % of that after 20 fits."""
    after_20, after_200 = map(int, run(MANY_FITS, "200").split())
    assert after_200 < 1.2 * after_20


NEW_SHAPES = """
import sys
from pathlib import Path
import numpy as np
import jax
import bayes_irsl as bi

for size in range(20, 30):
    y = np.random.default_rng(0).integers(0, 2, (size, size)).astype(float)
    bi.fit(bi.ItemResponse(curve="1pl"), bi.Responses.from_wide(y), draws=40)
    if sys.argv[1] == "clear":
        jax.clear_caches()
    if size == 22 or size == 29:
        print(int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 10**6)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_eng_03_jax_clear_caches_gives_the_memory_of_other_shapes_back():
    """ENG-03: every new shape costs a compilation; the way to clear them that the README names works."""
    kept, cleared = (np.diff([int(n) for n in run(NEW_SHAPES, how).split()])[0] for how in ("keep", "clear"))
    assert kept > 100
    assert cleared < kept / 3


def test_eng_04_a_fit_holds_no_value_a_cell():
    """ENG-04: theta, a, b and hyperparameters alone: (S + 2 J + about 5) draws of 4 bytes, for any number of cells.

    At 500 x 2,000 and 4,000 draws that is 72 MB, where a probability a cell would be 16 GB.
    """
    fit = bi.fit(bi.ItemResponse(), bi.simulate_responses(40, 60, seed=0)[0], draws=400)
    posterior = fit.tree["posterior"].dataset
    assert not any({"subject", "item"} <= set(v.dims) for v in posterior.data_vars.values())
    values = sum(v.nbytes for v in posterior.data_vars.values())
    assert values <= (40 + 2 * 60 + 6) * 400 * 4
    draws = [group for group in fit.tree.children.values() if "draw" in group.dims]
    assert sum(v.nbytes for group in draws for v in group.dataset.data_vars.values()) < 1.1 * values


AT_SIZE = """
import resource
import bayes_irsl as bi

fit = bi.fit(bi.ItemResponse(), bi.simulate_responses(500, 2000, seed=0)[0], draws=4000)
print(sum(v.nbytes for v in fit.tree["posterior"].dataset.data_vars.values()))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak in kilobytes")
def test_eng_04_at_its_size():
    """ENG-04: 500 x 2,000 and 4,000 draws: 72 MB of draws, and a peak that no array of cells by draws fits into."""
    held, peak = map(int, run(AT_SIZE).split())
    assert held == pytest.approx(72e6, rel=0.02)
    assert peak < 2e9


# --- chains and seeds -------------------------------------------------------------------------------------------------

NUTS = {"method": "nuts", "chains": 4, "draws": 100, "warmup": 100}


@pytest.fixture(scope="module")
def answers():
    """2PL, 30 x 40."""
    return bi.simulate_responses(30, 40, seed=0)[0]


@pytest.fixture(scope="module")
def first(answers):
    return bi.fit(bi.ItemResponse(), answers, seed=0, **NUTS)


def test_eng_05_four_chains_run_together_and_quietly(first, answers, capfd):
    """ENG-05: an array exists before four chains are asked for; nothing is printed, no warning (they are errors).

    What is done is said: the chains run together on one device.
    """
    assert jnp.ones(3).sum() == 3
    fit = bi.fit(bi.ItemResponse(), answers, seed=1, **NUTS)
    assert capfd.readouterr() == ("", "")
    theta = fit.tree.posterior["theta"].values
    assert theta.shape[:2] == (4, 100)
    assert len(np.unique(theta[:, 0, 0])) == 4
    assert "chains run together on one device" in " ".join(bi.fit.__doc__.split())


def test_eng_06_and_07_a_second_run_gives_the_same_draws(first, answers):
    """ENG-06 and ENG-07: the same objects fitted twice by chains run together: two valid results, bitwise equal."""
    again = bi.fit(bi.ItemResponse(), answers, seed=0, **NUTS)
    for fit in (first, again):
        assert np.isfinite(stacked(fit, "theta")).all()
        assert int(fit.tree.sample_stats.diverging.sum()) == 0
    assert again.tree.posterior.identical(first.tree.posterior)
    assert again.tree.sample_stats.equals(first.tree.sample_stats)


def test_eng_07_versions_device_and_precision_are_stored(first):
    """ENG-07: with every result."""

    facts = {name: json.loads(value) for name, value in first.tree.attrs.items()}
    assert facts["seed"] == 0
    assert {"jax", "numpyro", "numpy", "python"} <= set(facts["versions"])
    assert facts["versions"]["jax"] == jax.__version__
    assert facts["device"] == jax.default_backend()
    assert facts["precision"] == "float32"


DIGEST = """
import hashlib
import bayes_irsl as bi

answers = bi.simulate_responses(30, 40, seed=0)[0]
fit = bi.fit(bi.ItemResponse(), answers, seed=0, method="nuts", chains=4, draws=100, warmup=100)
print(hashlib.sha256(fit.tree.posterior["theta"].values.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_eng_07_another_process_gives_the_same_draws():
    """ENG-07: bitwise equal between two processes on one machine."""
    assert run(DIGEST) == run(DIGEST)


# --- rows and columns without answers, codes --------------------------------------------------------------------------


def test_data_06_five_by_five_with_an_empty_row_and_column():
    """DATA-06: 5 x 5, row 3 and column 2 all missing: all come back, the empty ones at their priors."""
    y = np.random.default_rng(0).integers(0, 2, (5, 5)).astype(float)
    y[2], y[:, 1] = np.nan, np.nan
    fit = bi.fit(bi.ItemResponse(), bi.Responses.from_wide(y), seed=0, draws=4000)
    p = fit.tree.posterior
    assert list(p["subject"].values) == list(p["item"].values) == ["0", "1", "2", "3", "4"]
    empty = stacked(fit, "theta")[:, 2]
    # four standard errors of 4,000 independent draws
    assert empty.mean() == pytest.approx(0, abs=4 / np.sqrt(4000))
    assert empty.std() == pytest.approx(1, abs=4 / np.sqrt(2 * 4000))
    intercept = -stacked(fit, "a")[:, 1] * stacked(fit, "b")[:, 1]
    prior = stacked(fit, "sd_intercept")[:, 0] ** 2 + stacked(fit, "mean_intercept")[:, 0].var()
    assert intercept.std() == pytest.approx(np.sqrt(prior.mean()), rel=0.1)


def test_data_10_a_code_named_as_missing_is_missing():
    """DATA-10: fits of the table with the codes and of the one with NaN are equal, draw by draw."""
    coded = bi.Responses.from_wide([[1, 0, -1], [0, 1, 1], [1, -99999, 0]], missing_codes=(-1, -99999))
    plain = bi.Responses.from_wide([[1, 0, np.nan], [0, 1, 1], [1, np.nan, 0]])
    first, second = (bi.fit(bi.ItemResponse(curve="1pl"), r, seed=0, draws=100) for r in (coded, plain))
    assert first.tree.posterior.identical(second.tree.posterior)
    for name, values in first.tree["log_prior"].data_vars.items():
        np.testing.assert_allclose(values, second.tree["log_prior"][name], atol=1e-6)
