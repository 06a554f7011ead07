"""Trajectories fitted in two stages: abilities from answers or scores, then their course over compute."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import numpy.typing as npt
import xarray as xr

from bayes_irsl.abilities import (
    Estimated,
    chance_of,
    from_answers,
    from_item_draws,
    from_scores,
    is_aggregate,
    with_losses,
)
from bayes_irsl.cells import problem
from bayes_irsl.covariates import Layout, layout
from bayes_irsl.errors import InputError
from bayes_irsl.inference.hyperparameters import Sampler
from bayes_irsl.inference.staged import Estimates, staged
from bayes_irsl.inference.tree import PACKAGES, build_tree, log_prior_of
from bayes_irsl.item_fit import Run, approximate
from bayes_irsl.item_stage import item_stage
from bayes_irsl.question_error import less_shared, shared_question_error
from bayes_irsl.repeated_fit import rate_estimates
from bayes_irsl.responses import Responses
from bayes_irsl.spec import AbilityTrajectory, ItemResponse, RepeatedSampling

if TYPE_CHECKING:
    from bayes_irsl.bank import ItemBank

Floats = npt.NDArray[np.floating]

# Which coordinate each hyperparameter runs over.
DIMS: dict[str, tuple[str, ...]] = {
    "level": ("dimension",),
    "slope": ("dimension",),
    "pull": ("covariate",),
    "effect": ("extra",),
    "direction": ("dimension",),
    "scatter": ("subject",),
    "bend": ("covariate",),
    "correlation": ("dimension", "other_dimension"),
}


def fit_trajectory(
    spec: AbilityTrajectory, responses: Responses, run: Run, anchor: ItemBank | None = None
) -> xr.DataTree:
    """The posterior of abilities, items and trajectory as one tree."""
    place = layout(spec, responses.subjects)
    curves = isinstance(spec.items, ItemResponse) and not is_aggregate(responses)
    if spec.questions == "population" and not curves:
        raise InputError('questions="population" needs answers to questions and an ItemResponse of them')
    if anchor is not None and (run.method == "nuts" or not curves):
        raise InputError('anchor goes with answers to items and method="staged" or "laplace"')
    if run.method == "nuts":
        posterior, constant, stats, diagnostics = _jointly(spec, responses, place, run)
    else:
        posterior, constant, stats, diagnostics = _in_stages(spec, responses, place, run, anchor)
    coords = {"chain": np.arange(run.chains), "draw": np.arange(posterior.sizes["draw"])}
    reference = ("covariate", 10.0**place.reference, {"long_name": "covariates at which levels are stated"})
    out = xr.DataTree.from_dict(
        {
            "posterior": posterior,
            "sample_stats": xr.Dataset({k: (("chain", "draw"), v) for k, v in stats.items()}, coords),
            "log_prior": log_prior_of(spec.priors, posterior),
            "observed_data": responses.to_xarray(),
            "constant_data": constant.assign(reference=reference).assign_coords(covariate=list(place.covariates)),
        }
    )
    facts = {
        "spec": {"kind": "AbilityTrajectory", **spec.to_dict()},
        "method": run.method,
        "seed": run.seed,
        "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        "device": jax.default_backend(),
        "data_hash": responses.data_hash,
        "scale": f"logit of accuracy, chance level: {spec.chance}"
        if is_aggregate(responses)
        else "location and shape of success rates"
        if isinstance(spec.items, RepeatedSampling)
        else ("of the items' calibration" if anchor is None else f"of the anchoring bank: {anchor.scale}"),
        "anchored_on": None if anchor is None else anchor.scale_id,
        "diagnostics": diagnostics | ({"diverging": int(stats["diverging"].sum())} if "diverging" in stats else {}),
    }
    out.attrs = {name: json.dumps(value) for name, value in facts.items()}
    return out


Parts = tuple[xr.Dataset, xr.Dataset, dict[str, np.ndarray], dict[str, Any]]


def _in_stages(
    spec: AbilityTrajectory, responses: Responses, place: Layout, run: Run, anchor: ItemBank | None
) -> Parts:
    """Items by Laplace (or scores as they are), then the trajectory of the abilities."""
    diagnostics: dict[str, Any] = {}
    shared = None
    if isinstance(spec.items, RepeatedSampling):
        rng = np.random.default_rng([run.seed, 7])
        estimated = rate_estimates(spec.items, responses, run.per_chain * run.chains, rng)
        posterior, constant = _score_items(responses), _rate_facts(responses)
    elif is_aggregate(responses):
        rng = np.random.default_rng([run.seed, 7])
        floor = chance_of(responses.items) if spec.chance == "floor" else np.zeros(responses.n_items)
        estimated = from_scores(responses, floor, run.per_chain * run.chains, rng)
        posterior, constant = _score_items(responses), _score_facts(responses, floor)
    else:
        posterior, constant, diagnostics = item_stage(spec.items, responses, run, anchor)
        estimated = _from_items(posterior) if anchor is None else _on_the_bank(spec.items, posterior, responses, run)
        shared = _question_error(spec, responses, place, posterior, constant, estimated.dimensions)
        if shared is not None:
            own, draws = less_shared(estimated.error, estimated.draws, estimated.mean, shared)
            estimated = replace(estimated, error=own, draws=draws)
    if spec.losses:
        estimated, scale = _losses(spec, responses, place, estimated, run)
        constant = constant.merge(scale)
        shared = None if shared is None else np.r_[shared, np.zeros(len(spec.losses))]
    found = replace(_of_layout(estimated, place), shared_error=shared)
    sampler = Sampler(**_sampler(run), draws=run.per_chain, method="laplace" if run.method == "laplace" else None)
    hypers, theta, stats, facts = staged(found, spec.priors, sampler)
    if shared is not None:
        facts["question_error_sd"] = np.sqrt(shared).tolist()
    everyone = estimated.draws.copy()
    everyone[:, place.used] = theta
    single = "theta" in posterior and "dimension" not in posterior["theta"].dims
    if single and not spec.losses:
        everyone = everyone[..., 0]
    posterior = _with_trajectory(posterior, responses, estimated.dimensions, place, hypers, run.chains, everyone)
    return posterior, constant.merge(_first_stage(estimated, responses)), stats, diagnostics | facts


def _losses(
    spec: AbilityTrajectory, responses: Responses, place: Layout, estimated: Estimated, run: Run
) -> tuple[Estimated, xr.Dataset]:
    absent = [name for name in spec.losses if name not in responses.subjects]
    if absent:
        raise InputError(f"loss {absent[0]!r}: no such subject column; there are {list(responses.subjects.columns)}")
    rng = np.random.default_rng([run.seed, 8])
    return with_losses(estimated, responses.subjects[list(spec.losses)], place.used, rng)


def _first_stage(estimated: Estimated, responses: Responses) -> xr.Dataset:
    """Estimates of abilities as the trajectory has seen them, with their errors."""
    return xr.Dataset(
        {
            "estimate": (("subject", "dimension"), estimated.mean),
            "estimate_error": (("subject", "dimension", "other_dimension"), estimated.error),
        },
        {
            "subject": np.asarray(responses.subjects.index, dtype=str),
            "dimension": list(estimated.dimensions),
            "other_dimension": list(estimated.dimensions),
        },
    )


def _question_error(
    spec: AbilityTrajectory,
    responses: Responses,
    place: Layout,
    posterior: xr.Dataset,
    constant: xr.Dataset,
    dimensions: tuple[str, ...],
) -> Floats | None:
    """Variances (D,) of what the questions asked add to the abilities of a group's subjects alike."""
    if spec.questions == "given":
        return None
    names = constant["item_dimension"].to_numpy().astype(str).tolist()
    of_item = np.array([dimensions.index(v) if v in dimensions else 0 for v in names], np.intp)
    return shared_question_error(posterior, of_item, responses, place)


def _jointly(spec: AbilityTrajectory, responses: Responses, place: Layout, run: Run) -> Parts:
    """Items and trajectory in one posterior, started from the two stages."""
    if spec.questions == "population":
        raise InputError('questions="population" is for method="staged": a joint fit is about the given questions')
    if is_aggregate(responses):
        raise InputError('scores of whole benchmarks have no items to fit jointly: use method="staged"')
    if isinstance(spec.items, RepeatedSampling):
        raise InputError('a trajectory of success rates is for method="staged"')
    if spec.losses or place.scattered:
        raise InputError('losses and scatter="student" are for method="staged"')
    task = problem(spec.items, responses)
    if not np.array_equal(task.kept_subjects, place.used):
        raise InputError(
            f"{len(place.used)} of {task.n_subjects} subjects with answers have {' and '.join(place.covariates)}: a "
            'joint fit needs it of all of them; use method="staged", where the others inform the items only'
        )
    from bayes_irsl.inference.joint import joint

    # Abilities are what items are regressed on: several draws for each of them.
    approximation, raw, _ = approximate(task, run, max(1000, 5 * task.n_subjects))
    s = approximation.structure
    begun = build_tree(task, s, raw, {}, chains=1, method="laplace", seed=run.seed, diagnostics={})
    estimated = _from_items(begun.posterior.to_dataset())
    estimates = _of_layout(estimated, place)
    hypers, *_ = staged(estimates, spec.priors, Sampler(**_sampler(run), draws=-(-len(raw.theta) // run.chains)))
    points, seen = place.points(len(task.dimensions)), (estimates.mean, estimates.error)
    raw, hypers, stats = joint(task, s, raw, *points, hypers, seen, spec.priors, draws=run.draws, **_sampler(run))
    tree = build_tree(task, s, raw, stats, chains=run.chains, method="nuts", seed=run.seed, diagnostics={})
    posterior = tree.posterior.to_dataset()
    dimensions = task.dimensions if len(task.dimensions) > 1 else ("ability",)
    found = _with_trajectory(posterior, responses, dimensions, place, hypers, run.chains)
    diagnostics = {f"items_{k}": v for k, v in approximation.diagnostics.items()}
    constant = tree["constant_data"].to_dataset().merge(_first_stage(estimated, responses))
    return found, constant, stats, diagnostics


def _sampler(run: Run) -> dict[str, Any]:
    names = ("seed", "chains", "warmup", "target_accept", "max_tree_depth", "progress")
    return {name: getattr(run, name) for name in names}


def _on_the_bank(spec: ItemResponse, posterior: xr.Dataset, responses: Responses, run: Run) -> Estimated:
    """Estimates on the scale of an anchoring bank, from the answers and the draws of the items.

    Draws of abilities will not do: few answers leave the sd of their prior in doubt, which cannot be taken out then.
    """
    items = spec.resolve(responses)
    rng = np.random.default_rng([run.seed, 9])
    drawn = posterior.stack(sample=("chain", "draw")).sel(item=np.asarray(responses.items.index, dtype=str))
    return from_answers(drawn, responses, items.likelihood, items.squeeze, rng)


def _from_items(posterior: xr.Dataset) -> Estimated:
    """Estimates on the scale of the items, on which calibration subjects have sd 1."""
    theta = (
        posterior["theta"].stack(sample=("chain", "draw")).transpose("sample", "subject", ...).to_numpy().astype(float)
    )
    if "dimension" not in posterior["theta"].dims:
        return from_item_draws(theta[..., None], np.ones((1, 1)), ("ability",))
    names = tuple(posterior["dimension"].to_numpy().astype(str).tolist())
    if "correlation" in posterior:
        return from_item_draws(theta, posterior["correlation"].mean(("chain", "draw")).to_numpy().astype(float), names)
    # Fitted apart, benchmarks know nothing of each other.
    each = [from_item_draws(theta[..., [d]], np.ones((1, 1)), (name,)) for d, name in enumerate(names)]
    error = np.einsum("sd,de->sde", np.concatenate([e.error[:, :, 0] for e in each], 1), np.eye(len(names)))
    mean, draws = (np.concatenate([getattr(e, what) for e in each], -1) for what in ("mean", "draws"))
    return Estimated(names, mean, error, draws)


def _of_layout(estimated: Estimated, place: Layout) -> Estimates:
    """Estimates of the subjects that have covariates."""
    of_used = estimated.draws[:, place.used]
    return Estimates(place, estimated.mean[place.used], estimated.error[place.used], of_used)


def _with_trajectory(
    items: xr.Dataset,
    responses: Responses,
    dimensions: tuple[str, ...],
    place: Layout,
    hypers: dict[str, Floats],
    chains: int,
    theta: Floats | None = None,
) -> xr.Dataset:
    """Item draws as they are, abilities (n, S, ...) where they are new ones, and the trajectory's hyperparameters."""
    coords = {
        "chain": np.arange(chains),
        "draw": np.arange(len(hypers["slope"]) // chains),
        "subject": np.asarray(responses.subjects.index, dtype=str),
        "dimension": list(dimensions),
        "other_dimension": list(dimensions),
        "covariate": list(place.covariates),
        "extra": list(place.extras),
    }
    named = {name: (DIMS.get(name, ()), value) for name, value in hypers.items() if name != "correlation_tril"}
    if "scatter" in hypers:
        everyone = np.ones((len(hypers["scatter"]), responses.n_subjects))
        everyone[:, place.used] = hypers["scatter"]
        named["scatter"] = (("subject",), everyone)
    if theta is not None:
        named["theta"] = (("subject", "dimension")[: theta.ndim - 1], theta.astype(np.float32))
    variables = {
        name: (("chain", "draw", *dims), value.reshape(chains, -1, *value.shape[1:]))
        for name, (dims, value) in named.items()
    }
    used = {dim for dims, _ in variables.values() for dim in dims}
    replaced = [name for name in (*variables, "correlation", "sd_theta", "mean_theta") if name in items]
    kept = items.drop_vars(replaced)
    kept = kept.drop_vars([name for name in coords if name in kept.coords and name in used])
    return kept.assign(variables).assign_coords({name: coords[name] for name in coords if name in used})


def _score_items(responses: Responses) -> xr.Dataset:
    """Benchmarks as items: their curve is the ability's own."""
    return xr.Dataset(coords={"item": np.asarray(responses.items.index, dtype=str)})


def _rate_facts(responses: Responses) -> xr.Dataset:
    """Items of a trajectory of success rates, which has no curves of them."""
    benchmark = np.asarray(responses.items["benchmark"], dtype=str)
    return xr.Dataset({"item_benchmark": ("item", benchmark)}, {"item": np.asarray(responses.items.index, dtype=str)})


def _score_facts(responses: Responses, floor: Floats) -> xr.Dataset:
    benchmark = np.asarray(responses.items["benchmark"], dtype=str)
    return xr.Dataset(
        {
            "item_benchmark": ("item", benchmark),
            "item_dimension": ("item", benchmark),
            "item_floor": ("item", floor),
        },
        coords={"item": np.asarray(responses.items.index, dtype=str)},
    )
