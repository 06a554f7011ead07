"""Plots of fits. Each takes optional axes and returns them; ``.figure`` is what a notebook shows."""

from bayes_irsl.plots.adaptive import adaptive_trace, replay_curves
from bayes_irsl.plots.checks import ppc_distribution, ppc_means, ranks, trace
from bayes_irsl.plots.forecasts import forecast_fan, interval_coverage, item_forecasts, variance_split
from bayes_irsl.plots.passk import observed_pass_at_k, passk_fan, tail_plot
from bayes_irsl.plots.results import ability_forest, discriminations, heat_map, item_curves, wright_map

__all__ = [
    "ability_forest",
    "adaptive_trace",
    "discriminations",
    "forecast_fan",
    "heat_map",
    "interval_coverage",
    "item_curves",
    "item_forecasts",
    "observed_pass_at_k",
    "passk_fan",
    "ppc_distribution",
    "ppc_means",
    "ranks",
    "replay_curves",
    "tail_plot",
    "trace",
    "variance_split",
    "wright_map",
]
