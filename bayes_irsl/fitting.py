"""fit(): from a spec and answers to a posterior; Fit: the result, saved and loaded as one NetCDF file."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from bayes_irsl._files import replacing
from bayes_irsl.errors import InputError
from bayes_irsl.item_fit import Run, fit_items
from bayes_irsl.repeated_fit import fit_rates
from bayes_irsl.responses import Responses
from bayes_irsl.spec import AbilityTrajectory, ItemResponse, RepeatedSampling
from bayes_irsl.trajectory_fit import fit_trajectory

if TYPE_CHECKING:
    from bayes_irsl.bank import ItemBank
    from bayes_irsl.report import Report
    from bayes_irsl.report.rates import RatesReport
    from bayes_irsl.report.trajectory import TrajectoryReport

# By kind of model, the first being the default.
METHODS: dict[type, tuple[str, ...]] = {
    ItemResponse: ("laplace", "nuts", "svi"),
    AbilityTrajectory: ("staged", "laplace", "nuts"),
    RepeatedSampling: ("quadrature", "nuts"),
}

SPECS: dict[str, Any] = {kind.__name__: kind for kind in METHODS}


@dataclass(frozen=True)
class Fit:
    """A fitted model: what was asked, on which answers, and the posterior as an xarray DataTree.

    ``tree`` has the groups posterior, sample_stats, log_prior, observed_data and constant_data, so every ``az.*``
    function works on it. Abilities are on the bank's scale: calibration subjects have mean 0 and sd 1 in every draw.
    """

    spec: Any
    responses: Responses
    tree: xr.DataTree

    @property
    def method(self) -> str:
        """How the posterior was computed: "laplace", "nuts", "svi", "staged" or "quadrature"."""
        return json.loads(self.tree.attrs["method"])

    @property
    def seed(self) -> int:
        """Seed of all random numbers."""
        return json.loads(self.tree.attrs["seed"])

    @property
    def diagnostics(self) -> dict[str, Any]:
        """What the algorithm says of itself (convergence, iterations, seconds)."""
        return json.loads(self.tree.attrs["diagnostics"])

    def report(self) -> Report | TrajectoryReport | RatesReport:
        """Diagnostics with verdicts and remedies, and results, as text, HTML in a notebook, or a file."""
        if isinstance(self.spec, AbilityTrajectory):
            from bayes_irsl.report.trajectory import TrajectoryReport

            return TrajectoryReport(self)
        if isinstance(self.spec, RepeatedSampling):
            from bayes_irsl.report.rates import RatesReport

            return RatesReport(self)
        from bayes_irsl.report import Report

        return Report(self)

    def save(self, path: str | Path) -> Path:
        """Write one NetCDF file (atomically); readable without this package."""
        path = Path(path)
        with replacing(path) as part:
            self.tree.to_netcdf(part)
        return path

    def __repr__(self) -> str:
        p = self.tree.posterior
        kinds = {AbilityTrajectory: "trajectory", RepeatedSampling: "repeated sampling"}
        what = kinds.get(type(self.spec)) or f"{self.spec.curve} {self.spec.likelihood}"
        return (
            f"<Fit: {what} by {self.method}, {self.responses.n_subjects:,} subjects "
            f"x {self.responses.n_items:,} items, {p.sizes['chain']} chains x {p.sizes['draw']} draws>"
        )


def load(path: str | Path) -> Fit:
    """Read a file written by :meth:`Fit.save`."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        with xr.open_datatree(path) as opened:
            tree = opened.load()
        facts = json.loads(tree.attrs["spec"])
        responses = Responses.from_xarray(tree["observed_data"].to_dataset())
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{path} is not a file written by Fit.save: {error}") from None
    spec = SPECS[facts.pop("kind")].from_dict(facts)
    return Fit(spec, responses, tree)


def fit(
    spec: ItemResponse | AbilityTrajectory | RepeatedSampling,
    responses: Responses,
    *,
    method: str | None = None,
    anchor: ItemBank | None = None,
    seed: int = 0,
    draws: int = 1000,
    chains: int = 4,
    warmup: int = 300,
    target_accept: float = 0.8,
    max_tree_depth: int = 10,
    max_steps: int = 10_000,
    start: Fit | None = None,
    progress: bool | None = None,
) -> Fit:
    """Fit a model to answers.

    Parameters
    ----------
    spec, responses
        The model and the answers.
    method
        Of an ItemResponse: "laplace" (the default; seconds; items integrated out, abilities Gaussian, uncertain scales
        skewed), "nuts" (the reference: started, preconditioned and partly centred by Laplace, chains run together on
        one device), "svi" (a Gaussian guide in the coordinates of the Laplace approximation, trained until it stops
        improving). Of an AbilityTrajectory: "staged" (items by Laplace, then the trajectory of the abilities by
        importance sampling, with the abilities' uncertainty and their dependence on the items carried along; NUTS where
        the weights are poor), "laplace" (the same with hyperparameters normal around their mode: an approximation, for
        many benchmarks at once), "nuts" (items and trajectory in one posterior; minutes, for up to a few ten thousand
        answers). Of RepeatedSampling: "quadrature" (a grid a subject, importance sampling of what they share), "nuts".
    anchor
        A bank that knows some of the items: they have its posterior as prior, as a normal an item and an error of the
        scale that they share, and abilities are on its scale. New items learn theirs there. For curves "2pl" and
        "3pl", one ability. An AbilityTrajectory takes it for the items of its first stage.
    seed
        Same seed, same machine and versions: same numbers.
    draws, chains
        Posterior draws per chain, and chains. Laplace and SVI draws are independent and are divided among the chains:
        ``draws`` in all.
    warmup, target_accept, max_tree_depth
        Of NUTS. The metric comes from Laplace, so warm-up adapts the step size only.
    max_steps, start
        Of SVI: it stops by itself, at the latest after so many steps; ``start`` is an earlier fit by SVI to the same
        answers, which this one goes on from.
    progress
        Progress bar on standard error; by default only in a terminal or notebook.

    Raises
    ------
    InputError
        Where spec and answers do not fit together, or answers cannot carry the model.
    """
    if type(spec) not in METHODS:
        raise InputError(f"spec is a {type(spec).__name__}: expected one of {[kind.__name__ for kind in METHODS]}")
    if not isinstance(responses, Responses):
        raise InputError(
            f"responses is a {type(responses).__name__}: build it with Responses.from_long, from_wide or read_table"
        )
    methods = METHODS[type(spec)]
    method = methods[0] if method is None else method
    if method not in methods:
        raise InputError(f"method {method!r}: expected one of {list(methods)} for an {type(spec).__name__}")
    for name, value, least in (
        ("draws", draws, 4),
        ("chains", chains, 1),
        ("warmup", warmup, 0),
        ("seed", seed, 0),
        ("max_tree_depth", max_tree_depth, 1),
        ("max_steps", max_steps, 1),
    ):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise InputError(f"{name} = {value!r}: expected a whole number, at least {least}")
    if not 0 < target_accept < 1:
        raise InputError(f"target_accept = {target_accept!r}: expected a number between 0 and 1, such as 0.8")
    if start is not None and method != "svi":
        raise InputError(f"start goes with method='svi', which trains on; method={method!r} begins at Laplace's mode")
    show = _show_progress() if progress is None else progress
    run = Run(method, seed, draws, chains, warmup, target_accept, max_tree_depth, max_steps, show)
    if isinstance(spec, AbilityTrajectory):
        return Fit(spec, responses, fit_trajectory(spec, responses, run, anchor))
    if isinstance(spec, RepeatedSampling):
        if anchor is not None:
            raise InputError("anchor goes with item response models; RepeatedSampling has no items of its own")
        return Fit(spec, responses, fit_rates(spec, responses, run))
    resolved, tree = fit_items(spec, responses, run, anchor, _checked_start(start, spec.resolve(responses), responses))
    return Fit(resolved, responses, tree)


def _checked_start(start: Fit | None, spec: ItemResponse, responses: Responses) -> xr.DataTree | None:
    """The tree of an earlier fit, once it is known to be of the same model and answers."""
    if start is None:
        return None
    if start.method != "svi":
        raise InputError(f"start is a fit by {start.method!r}: expected one by 'svi'")
    if start.spec != spec or start.responses.data_hash != responses.data_hash:
        raise InputError("start is a fit of another spec or of other answers: pass the same ones, or no start")
    return start.tree


def _show_progress() -> bool:
    if os.environ.get("CI"):
        return False
    return sys.stderr.isatty() or "ipykernel" in sys.modules
