"""Plots: what they draw, on axes of the caller or their own, also where answers are missing."""

import numpy as np
import pytest
from fit_stand_in import fit_of, ordinary_fit, simulate
from matplotlib.figure import Figure

from bayes_irsl import plots
from bayes_irsl.errors import InputError
from bayes_irsl.plots import style

FIT_PLOTS = (
    plots.item_curves,
    plots.ability_forest,
    plots.wright_map,
    plots.heat_map,
    plots.discriminations,
    plots.ppc_means,
    plots.ppc_distribution,
    plots.ranks,
    plots.trace,
)


@pytest.fixture(scope="module")
def sparse():
    return ordinary_fit(25, 15, missing=0.5)


def caption(ax):
    return " ".join(text.get_text().replace("\n", " ") for text in ax.texts)


@pytest.mark.parametrize("plot", FIT_PLOTS, ids=lambda f: f.__name__)
def test_every_plot_draws_with_missing_answers_and_says_what_it_shows(plot, sparse):
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    ax = plot(sparse)
    ax.figure.draw_without_rendering()
    assert ax.get_title(loc="left")
    assert ax.get_xlabel() or ax.get_ylabel()
    assert caption(ax)
    mine = Figure().subplots()
    assert plot(sparse, ax=mine) is mine
    assert plt.get_fignums() == before


@pytest.mark.parametrize("likelihood", ["binomial", "beta-binomial", "beta"])
def test_plots_work_for_other_answers(likelihood):
    fit = ordinary_fit(15, 9, likelihood=likelihood)
    for plot in (plots.item_curves, plots.ppc_distribution, plots.heat_map):
        plot(fit).figure.draw_without_rendering()


@pytest.mark.parametrize("plot", [plots.item_curves, plots.ability_forest, plots.discriminations, plots.ppc_means])
def test_bands_name_their_kind_and_mass(plot, sparse):
    text = caption(plot(sparse))
    assert "equal-tailed" in text
    assert "90" in text


def test_curves_show_the_posterior_mean_and_the_answers():
    rng = np.random.default_rng(0)
    theta, b = np.linspace(-2, 2, 60), np.array([0.0, 1.0])
    table = simulate(theta, np.ones(2), b, rng=rng)
    ax = plots.item_curves(fit_of(table, theta, np.ones(2), b, noise=1e-6), ["0"], groups=3)
    line = ax.lines[0]
    x, y = line.get_data()
    assert np.allclose(y, 1 / (1 + np.exp(-x)), atol=1e-4)
    dots = ax.collections[-1].get_offsets()
    assert len(dots) == 3
    assert dots[0][1] == pytest.approx(table[:20, 0].mean(), abs=1e-6)
    with pytest.raises(InputError, match="no item 'x'"):
        plots.item_curves(fit_of(table, theta, np.ones(2), b), ["x"])


def test_forest_orders_subjects_and_thins_many():
    fit = ordinary_fit(90, 6)
    ax = plots.ability_forest(fit, most=10)
    assert len(ax.get_yticks()) == 10
    assert "10 of 90" in caption(ax)
    theta = fit.tree["posterior"]["theta"].mean(("chain", "draw"))
    labels = [text.get_text() for text in ax.get_yticklabels()]
    order = np.argsort(theta.to_numpy())
    assert [labels[0], labels[-1]] == theta["subject"].to_numpy()[order[[0, -1]]].tolist()
    two = plots.ability_forest(fit, ["3", "5"])
    assert {text.get_text() for text in two.get_yticklabels()} == {"3", "5"}


def test_heat_map_sorts_and_averages_large_tables():
    fit = ordinary_fit(50, 40)
    image = plots.heat_map(fit, most=(10, 8)).images[0].get_array()
    assert image.shape == (10, 8)
    assert image[0].mean() > image[-1].mean()
    assert image[:, 0].mean() > image[:, -1].mean()
    assert image.mean() == pytest.approx(fit.responses.answer.mean(), abs=1e-6)
    assert "Grey: no answer" in caption(plots.heat_map(ordinary_fit(12, 6, missing=0.4)))


def test_means_outside_are_marked():
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=60), rng.normal(size=40)
    table = simulate(theta, np.ones(40), b, rng=rng)
    ax = plots.ppc_means(fit_of(table, theta + 2, np.ones(40), b))
    assert "outside" in [text.get_text() for text in ax.get_legend().get_texts()]
    with pytest.raises(InputError, match="subjects"):
        plots.ppc_means(fit_of(table, theta, np.ones(40), b), "rows")


def test_ranks_find_the_chain_that_is_elsewhere():
    fit = ordinary_fit(6, 4, draws=100)
    fit.tree["posterior"]["b"].values[2, :, 1] += 3
    ax = plots.ranks(fit)
    assert "b[1]" in ax.get_title(loc="left")
    assert len(ax.patches) >= 4
    with pytest.raises(InputError, match="no free parameter"):
        plots.trace(fit, "zeta")


def test_names_with_dollars_and_great_length_are_plain_text():
    ax = style.label(Figure().subplots(), "cost in $ and \\frac{", "a caption", "x", "y")
    ax.figure.draw_without_rendering()
    assert style.plain("a" * 80) == "a" * 59 + "…"
