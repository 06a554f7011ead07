"""Plots of fits. Each takes optional axes and returns them; ``.figure`` is what a notebook shows."""

from bayes_irsl.plots.checks import ppc_distribution, ppc_means, ranks, trace
from bayes_irsl.plots.results import ability_forest, discriminations, heat_map, item_curves, wright_map

__all__ = [
    "ability_forest",
    "discriminations",
    "heat_map",
    "item_curves",
    "ppc_distribution",
    "ppc_means",
    "ranks",
    "trace",
    "wright_map",
]
