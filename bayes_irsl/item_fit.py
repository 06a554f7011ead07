"""Item response models fitted by Laplace, NUTS or SVI: from a spec and answers to a posterior as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xarray as xr
from tqdm.auto import tqdm

from bayes_irsl.anchoring import anchored
from bayes_irsl.cells import Problem, problem
from bayes_irsl.inference.laplace import MAX_ITERATIONS, LaplaceFit, laplace
from bayes_irsl.inference.laplace_draws import laplace_draws
from bayes_irsl.inference.scale import RawDraws
from bayes_irsl.inference.tree import build_tree
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse

if TYPE_CHECKING:
    from bayes_irsl.bank import ItemBank


@dataclass(frozen=True)
class Run:
    """How a posterior is computed; the arguments of :func:`bayes_irsl.fit`."""

    method: str
    seed: int
    draws: int
    chains: int
    warmup: int
    target_accept: float
    max_tree_depth: int
    max_steps: int
    progress: bool

    @property
    def per_chain(self) -> int:
        """Draws per chain where ``draws`` are divided among the chains."""
        return max(self.draws // self.chains, 1)


def fit_items(
    spec: ItemResponse,
    responses: Responses,
    run: Run,
    anchor: ItemBank | None = None,
    start: xr.DataTree | None = None,
) -> tuple[ItemResponse, xr.DataTree]:
    """The resolved spec and the posterior; ``start`` is the tree of an earlier fit by SVI, to go on from."""
    task = problem(spec, responses)
    if anchor is not None:
        task = anchored(task, anchor)
    total = run.per_chain * run.chains
    approximation, raw, drawn = approximate(task, run, total if run.method == "laplace" else max(400, run.chains))
    s = approximation.structure
    diagnostics = dict(approximation.diagnostics)
    guide = None
    if run.method == "laplace":
        stats = {"log_approximation": drawn["log_density"].reshape(run.chains, -1)}
        diagnostics["share_resampled"] = float(drawn["resampled"].mean())
    elif run.method == "nuts":
        from bayes_irsl.inference.nuts import nuts

        raw, stats = nuts(
            task,
            s,
            raw,
            seed=run.seed,
            chains=run.chains,
            draws=run.draws,
            warmup=run.warmup,
            target_accept=run.target_accept,
            max_tree_depth=run.max_tree_depth,
            progress=run.progress,
        )
    else:
        from bayes_irsl.inference.svi import Guide, svi

        begun = None if start is None else start["guide"].to_dataset()
        raw, stats, diagnostics, guide = svi(
            task,
            approximation,
            seed=run.seed,
            draws=total,
            chains=run.chains,
            progress=run.progress,
            max_steps=run.max_steps,
            start=None if begun is None else Guide(begun["location"].values, begun["scale"].values),
        )
    tree = build_tree(task, s, raw, stats, chains=run.chains, method=run.method, seed=run.seed, diagnostics=diagnostics)
    if guide is not None:
        tree["guide"] = xr.DataTree(xr.Dataset({k: ("coordinate", v) for k, v in guide._asdict().items()}))
    return task.spec, tree


def approximate(task: Problem, run: Run, draws: int) -> tuple[LaplaceFit, RawDraws, dict[str, Any]]:
    """Laplace's approximation and draws of it, on the scale of fitting and as they come."""
    approximation = _laplace_with_bar(task, run.progress)
    drawn = laplace_draws(task, approximation, draws, run.seed)
    return approximation, RawDraws.from_vectors(approximation.structure, drawn["theta"], drawn["h"], drawn["x"]), drawn


def _laplace_with_bar(task: Any, show: bool) -> LaplaceFit:
    with tqdm(total=MAX_ITERATIONS, desc="mode", disable=not show, leave=False, unit="pass") as bar:

        def progress(iteration: int, decrement: float) -> None:
            bar.n = iteration
            bar.set_postfix_str(f"distance to the mode {decrement:.2g}")

        return laplace(task, progress)
