"""Simulation-based calibration: parameters from the prior, answers from them, and where the truth ranks among draws.

If model, prior and sampler are right, every rank is uniform. All simulations run at once, one chain each, in shards
that are kept as files: what is finished is not done again. Source: Talts et al. (2018); for the log likelihood, a
quantity that depends on the data, Modrak et al. (2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import xarray as xr
from numpyro import handlers
from tqdm.auto import tqdm

from bayes_irsl._files import replacing
from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.cells import problem
from bayes_irsl.errors import InputError
from bayes_irsl.inference.centring import SUFFIX, unconstrained
from bayes_irsl.inference.chains import Settings, run_chains
from bayes_irsl.inference.importance import importance_sample
from bayes_irsl.inference.nuts import Potential, model_of
from bayes_irsl.inference.prior_predictive import from_prior
from bayes_irsl.responses import Responses
from bayes_irsl.spec import ItemResponse

Array = Any
# How far sites are centred: the tables of a calibration run are small, so scales are uncertain.
SHARES = {"theta": 0.5, "intercept": 0.5, "log_a_deviation": 0.1, "log_phi_item": 0.1}


class Target(Protocol):
    """A model to calibrate: hashable, with a text that tells it from others."""

    @property
    def name(self) -> str: ...

    def simulate(self, key: Array, n: int) -> tuple[Any, Any]:
        """``n`` parameters from the prior (unconstrained, leading axis n) and the data they gave (likewise)."""

    def potential(self, z: Any, data: Any) -> Array:
        """Minus the log posterior density that is sampled."""

    def quantities(self, z: Any, data: Any) -> dict[str, Array]:
        """What is ranked, by name, any shapes."""


@dataclass(frozen=True)
class ItemResponseTarget:
    """A complete table of ``n_subjects`` x ``n_items``; counts have 1 to ``trials`` trials.

    ``fitted``, if given, is the spec that is fitted in the place of the one that simulates: a negative control.
    """

    spec: ItemResponse
    n_subjects: int = 15
    n_items: int = 15
    trials: int = 12
    fitted: ItemResponse | None = None

    @property
    def name(self) -> str:
        return repr(self)

    def simulate(self, key: Array, n: int) -> tuple[dict[str, Array], Any]:
        task = problem(self.spec, self._template())
        cells, _ = task.cells()
        keys = jax.random.split(key, 2 * n)
        with jax.enable_x64(True):  # answers next to 1 keep their distance from it
            sites, answer = jax.vmap(partial(from_prior, model_of(task.spec, 1), cells))(keys)
        trials = None if task.responses.trials is None else np.broadcast_to(np.asarray(cells.trials), answer.shape)
        answers = LIKELIHOODS[task.spec.likelihood].prepare(np.asarray(answer, np.float64), trials)
        answers = jax.tree.map(lambda v: jnp.asarray(v)[:n], answers)
        # The second half of the draws are starting points, which know nothing of the data.
        shares = {name: jnp.asarray(c) for name, c in SHARES.items() if name in sites}
        first = jax.tree.map(lambda v: v[0], answers)
        sites = {name: jnp.asarray(np.asarray(v), jnp.float32) for name, v in sites.items()}
        z = unconstrained(model_of(task.spec, 1), shares, (cells, first), sites)
        stacked = jax.tree.map(lambda v: jnp.broadcast_to(v, (n, *jnp.shape(v))), (cells, shares))
        return z, (stacked[0], answers, stacked[1])

    def potential(self, z: dict[str, Array], data: Any) -> Array:
        return self._potential(z, data)

    def quantities(self, z: dict[str, Array], data: Any) -> dict[str, Array]:
        cells, answers, _ = data
        sites = self._potential.sites(z, data)
        program = handlers.substitute(handlers.seed(self._model, jax.random.key(0)), sites)
        answer = handlers.trace(program).get_trace(cells, answers)["answer"]
        log_likelihood = answer["fn"].log_prob(answer["value"]).sum()
        return {k: v for k, v in sites.items() if not k.endswith(SUFFIX)} | {"log_likelihood": log_likelihood}

    @property
    def _potential(self) -> Potential:
        return Potential((self.fitted or self.spec).resolve(self._template()), 1)

    @property
    def _model(self) -> Any:
        return model_of(self._potential.spec, 1)

    def _template(self) -> Responses:
        """A table of the right shape and kind; its answers are never looked at."""
        shape = (self.n_subjects, self.n_items)
        if self.spec.likelihood in ("binomial", "beta-binomial"):
            trials = 1 + np.arange(self.n_subjects * self.n_items).reshape(shape) % self.trials
            return Responses.from_wide(np.ones(shape), trials=trials)
        if self.spec.likelihood == "bernoulli":
            return Responses.from_wide(np.ones(shape))
        return Responses.from_wide(np.full(shape, 0.37))


def simulation_based_calibration(
    target: Target | ItemResponse,
    *,
    simulations: int = 200,
    draws: int = 63,
    thin: int = 10,
    warmup: int = 500,
    target_accept: float = 0.9,
    max_tree_depth: int = 6,
    seed: int = 0,
    shard: int = 100,
    folder: str | Path | None = None,
    progress: bool = False,
    sampler: str = "nuts",
) -> xr.Dataset:
    """Ranks of true values among posterior draws, for every scalar quantity of a model.

    Parameters
    ----------
    target
        An :class:`ItemResponse` (on a complete 15 x 15 table), an :class:`ItemResponseTarget` for another size, or
        another target.
    simulations, draws, thin
        Data sets; draws kept of each, every ``thin``-th transition after ``warmup``. Thin until draws are nearly
        independent: correlated draws look like a wrong sampler.
    target_accept, max_tree_depth
        Of NUTS. All simulations wait for the slowest, so depth is capped.
    shard, folder
        Simulations a shard; with a folder every finished shard is a file there, and a second call with the same
        arguments goes on where the first stopped.
    sampler
        "nuts", or "importance" (few parameters; no use of thin, warmup and what follows), one data set after another.

    Returns
    -------
    Dataset
        rank (simulation, quantity) in 0..draws; of NUTS divergences and acceptance, of importance sampling pareto_k
        (simulation,).
    """
    if isinstance(target, ItemResponse):
        target = ItemResponseTarget(target)
    if simulations < 10 or draws < 10 or thin < 1 or shard < 1:
        raise InputError(
            f"simulations = {simulations}, draws = {draws}, thin = {thin}, shard = {shard}: "
            "expected at least 10, 10, 1 and 1"
        )
    settings = Settings(warmup, target_accept, max_tree_depth, adapt_metric=True, data_per_chain=True)
    identity = repr((target.name, sampler, settings, draws, thin, seed, shard, numpyro.__version__, jax.__version__))
    parts = []
    for first in range(0, simulations, shard):
        size = min(shard, simulations - first)
        path = None if folder is None else Path(folder) / f"{_digest(identity)}-{first:05d}-{size}.npz"
        part = None if path is None else _read(path)
        if part is None:
            key = jax.random.fold_in(jax.random.key(seed), first)
            label = f"{first + size} of {simulations} simulations"
            if sampler == "importance":
                part = _shard_by_importance(target, key, size, draws, progress, label)
            else:
                part = _shard_by_nuts(target, settings, key, size, draws, thin, progress, label)
            if path is not None:
                _write(path, part)
        parts.append(part)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "quantity"}
    rank = joined.pop("rank")
    return xr.Dataset(
        {"rank": (("simulation", "quantity"), rank), **{k: ("simulation", v) for k, v in joined.items()}},
        {"quantity": parts[0]["quantity"], "simulation": np.arange(simulations)},
        {"draws": draws, "target": target.name},
    )


def _simulated(target: Target, key: Array, size: int) -> tuple[Any, Any, Any]:
    """True parameters, starting points that know nothing of the data, and the data."""
    z, data = target.simulate(key, size)
    truth, start = (jax.tree.map(lambda v, half=half: v[half], z) for half in (slice(None, size), slice(size, None)))
    return truth, start, data


def _shard_by_importance(
    target: Target, key: Array, size: int, draws: int, progress: bool, label: str
) -> dict[str, np.ndarray]:
    truth, start, data = _simulated(target, key, size)
    found = []
    for i in tqdm(range(size), desc=label, disable=not progress, leave=False):
        one = jax.tree.map(lambda v, i=i: v[i], data)
        begin = jax.tree.map(lambda v, i=i: v[i : i + 1], start)
        found.append(importance_sample(target.potential, begin, one, draws=draws, seed=i))
    drawn = jax.tree.map(lambda *v: np.stack(v), *[f.draws for f in found])
    names, rank = _ranks(target, truth, drawn, data)
    return {"rank": rank, "pareto_k": np.array([f.pareto_k for f in found]), "quantity": names}


def _shard_by_nuts(
    target: Target, settings: Settings, key: Array, size: int, draws: int, thin: int, progress: bool, label: str
) -> dict[str, np.ndarray]:
    for_data, for_chains = jax.random.split(key)
    truth, start, data = _simulated(target, for_data, size)
    n = sum(np.prod(v.shape[1:], dtype=int) for v in jax.tree.leaves(start))
    chains = run_chains(
        target.potential,
        start,
        jnp.ones(n),
        data,
        settings,
        key=for_chains,
        draws=draws,
        thin=thin,
        progress=progress,
        description=label,
    )
    names, rank = _ranks(target, truth, chains.draws, data)
    return {
        "rank": rank,
        "divergences": chains.stats["diverging"].sum(1),
        "acceptance": chains.stats["accept_prob"].mean(1),
        "quantity": names,
    }


def _ranks(target: Target, truth: Any, drawn: Any, data: Any) -> tuple[np.ndarray, np.ndarray]:
    one = jax.jit(jax.vmap(target.quantities))
    true = one(truth, data)
    n_draws = jax.tree.leaves(drawn)[0].shape[1]
    below = jax.tree.map(lambda v: np.zeros(v.shape, int), true)
    for k in range(n_draws):
        values = one(jax.tree.map(lambda v, k=k: jnp.asarray(v[:, k]), drawn), data)
        below = {name: below[name] + np.asarray(values[name] < true[name]) for name in below}
    names = [
        name if below[name].ndim == 1 else f"{name}[{','.join(map(str, index))}]"
        for name in below
        for index in np.ndindex(below[name].shape[1:])
    ]
    flat = np.concatenate([v.reshape(len(v), -1) for v in below.values()], 1)
    return np.array(names), flat


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, np.ndarray] | None:
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def _write(path: Path, part: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        np.savez(temporary, **part)
