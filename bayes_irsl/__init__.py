"""Bayesian item response scaling laws for language models.

>>> import bayes_irsl as bi
>>> responses = bi.load_dataset("aime-2025")
>>> fit = bi.fit(bi.ItemResponse(), responses, method="nuts", seed=0)
>>> bank = bi.ItemBank.from_fit(fit)
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "InputError": "errors",
    "Prior": "priors",
    "Normal": "priors",
    "HalfNormal": "priors",
    "LogNormal": "priors",
    "ItemPriors": "priors",
    "TrajectoryPriors": "priors",
    "SamplingPriors": "priors",
    "ItemResponse": "spec",
    "AbilityTrajectory": "spec",
    "RepeatedSampling": "spec",
    "Responses": "responses",
    "read_table": "readers.table",
    "load_dataset": "datasets",
    "list_datasets": "datasets",
    "simulate_responses": "simulate",
    "Fit": "fitting",
    "fit": "fitting",
    "load": "fitting",
    "forecast": "forecasts.forecasting",
    "pass_at_k": "forecasts.passk",
    "samples_needed": "forecasts.passk",
    "compare_tails": "forecasts.tails",
    "prob_better": "forecasts.decisions",
    "rank_probabilities": "forecasts.decisions",
    "expected_regret": "forecasts.decisions",
    "compare_subjects": "forecasts.decisions",
    "decision_accuracy": "forecasts.scores",
    "sensitivity": "forecasts.sensitivity",
    "forward_splits": "forecasts.evaluation",
    "forward_validation": "forecasts.evaluation",
    "ItemBank": "bank",
    "score": "scoring",
    "AdaptiveTest": "adaptive.session",
    "AdaptiveForecast": "adaptive.forecasting",
    "departures": "adaptive.departures",
    "Stop": "adaptive.stopping",
    "replay": "adaptive.replay",
    "replay_summary": "adaptive.replay",
    "ItemResponseTarget": "inference.sbc",
    "simulation_based_calibration": "inference.sbc",
    "calibration_check": "diagnostics.ranks",
    "prior_predictive": "inference.prior_predictive",
    "log_likelihood": "diagnostics.pointwise",
    "log_likelihood_blocks": "diagnostics.pointwise",
    "link": "linking",
    "link_subjects": "linking",
    "Link": "linking",
}
_PARTS = {"targets": "adaptive.targets"}
__all__ = sorted(_WHERE)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"bayes_irsl.{_PARTS[name]}")
    if name not in _WHERE:
        raise AttributeError(f"module 'bayes_irsl' has no attribute {name!r}; it has {__all__}")
    return getattr(import_module(f"bayes_irsl.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, *_PARTS, "__version__"]
