"""AdaptiveForecast: which checkpoint to ask which question, so that the forecast of another model gets sharp."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from bayes_irsl import _validate as check
from bayes_irsl._options import check_mass, check_seed
from bayes_irsl.adaptive import beliefs
from bayes_irsl.adaptive.departures import TYPICAL
from bayes_irsl.adaptive.facets import Facets, Spread, covariance_of_departures, facets
from bayes_irsl.adaptive.gains import Believed, Candidates, believed, gains_of_all
from bayes_irsl.adaptive.layout import positions, sorted_questions
from bayes_irsl.adaptive.policies import best, positive
from bayes_irsl.adaptive.state import State, checked_answer
from bayes_irsl.adaptive.stopping import Stop
from bayes_irsl.adaptive.tables import Tables, answer_curve, grid, tables
from bayes_irsl.adaptive.targets import Accuracy
from bayes_irsl.bank import ItemBank
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.forecasting import forecast
from bayes_irsl.spec import LIKELIHOODS as KINDS

if TYPE_CHECKING:
    from bayes_irsl.fitting import Fit

Floats = npt.NDArray[np.floating]

POLICIES = ("variance", "ability", "random")
_PLACE = ("compute", "params", "tokens")


@dataclass(frozen=True, eq=False)
class AdaptiveForecast:
    """Choose (checkpoint, question) pairs that shrink the variance of a forecast most for their cost.

    The abilities of the checkpoints and of the model to forecast have the joint distribution that a fitted trajectory
    gives them; answers of one checkpoint teach of all others as far as they hang together there.

    >>> plan = bi.AdaptiveForecast(bank, trend, checkpoints, at={"params": 7e10, "tokens": 2e12}, cost="params")
    >>> state = plan.start(seed=0)
    >>> while (pair := plan.next(state)) is not None:
    ...     state = plan.answer(state, pair, ask(*pair))
    >>> plan.result(state)

    Parameters
    ----------
    bank : ItemBank
        Of the scale on which the trajectory was fitted, ``bi.fit(spec, responses, anchor=bank)``; one ability.
    trend : Fit
        Of an AbilityTrajectory.
    checkpoints : DataFrame (index: names)
        Trained models that may be asked: columns compute, or params and tokens, as the trajectory has them;
        optionally the columns of its ``pool`` and "run".
    at : mapping
        The model to forecast: compute, or params and tokens; pool, run.
    benchmark : str, optional
        The forecast is of the accuracy on its questions; needed where the bank has several.
    cost : str or mapping, optional
        Cost of one question by checkpoint: a column of the table or numbers by name; 1 each where it is not given.
    stop : Stop
        max_items counts pairs.
    policy : "variance", "ability" (each checkpoint's own ability instead of the forecast) or "random"
    by, departures
        As of :class:`AdaptiveTest`.
    """

    bank: ItemBank
    trend: Fit
    checkpoints: pd.DataFrame
    at: Mapping[str, Any]
    benchmark: str | None = None
    cost: Any = None
    stop: Stop = Stop()  # noqa: RUF009
    policy: str = "variance"
    by: str | None = None
    departures: Spread = TYPICAL
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.bank, ItemBank) or len(self.bank.dimensions) != 1:
            raise InputError("AdaptiveForecast needs an ItemBank of one ability")
        if self.policy not in POLICIES:
            raise check.unknown([self.policy], POLICIES, "policy")
        if not isinstance(self.checkpoints, pd.DataFrame) or not len(self.checkpoints):
            raise InputError("checkpoints: expected a table with a row for each model that may be asked")
        names = pd.Index(check.check_labels(self.checkpoints.index, "checkpoint"))
        check.check_unique(np.asarray(names), "checkpoint")
        if not set(_PLACE) & set(self.at):
            raise InputError(
                f"at = {dict(self.at)!r}: expected compute, or params and tokens, of the model to forecast"
            )
        missing = [c for c in _PLACE if c in self.at and c not in self.checkpoints]
        if missing:
            raise InputError(f"checkpoints: no column {missing[0]!r}, which at= gives for the model to forecast")
        if (self.stop.width, self.stop.probability, self.stop.min_gain) != (None,) * 3:
            raise InputError(f"stop = {self.stop}: a forecast's session knows sd, max_items, max_cost and min_items")
        self.prices  # noqa: B018

    # What is worked out once.

    @cached_property
    def names(self) -> list[str]:
        """Names of the checkpoints."""
        return [str(name) for name in self.checkpoints.index]

    @cached_property
    def fingerprint(self) -> str:
        """Name of the bank and checkpoints: a state of another plan is refused."""
        text = [*self.bank.items.index, *self.names, self.bank.scale_id, repr(dict(self.at))]
        return hashlib.sha256("\0".join(map(str, text)).encode()).hexdigest()[:16]

    @cached_property
    def prices(self) -> Floats:
        """Cost (S,) of one question."""
        if self.cost is None:
            return np.ones(len(self.checkpoints))
        if isinstance(self.cost, str) and self.cost not in self.checkpoints:
            raise check.unknown([self.cost], self.checkpoints.columns, "column of the checkpoints")
        given = self.checkpoints[self.cost] if isinstance(self.cost, str) else pd.Series(self.cost)
        return positive(given.reindex(self.checkpoints.index), "checkpoint")

    @cached_property
    def _abilities(self) -> tuple[Floats, Floats]:
        """Mean and covariance of the checkpoints' abilities, then of the forecast's, from the trajectory's draws."""
        table, at = self.checkpoints, dict(self.at)
        pool, n = self.trend.spec.pool, len(table)
        groups: list[str | None] = [str(g) for g in table[pool]] if pool is not None and pool in table else [None] * n
        groups.append(None if at.get("pool") is None else str(at["pool"]))
        runs = [str(r) for r in table["run"]] if "run" in table else [None] * n
        place: dict[str, Any] = {c: [*table[c].astype(float), float(at[c])] for c in _PLACE if c in at}
        every = list(dict.fromkeys(groups))
        found = forecast(
            self.trend,
            **place,
            pool=every if pool is not None else None,
            run=[*runs, at.get("run")],
            kind="ability",
            seed=self.seed,
        )["ability"].to_numpy()[..., 0]
        rows = [every.index(g) for g in groups] if pool is not None else [0] * (n + 1)
        draws = np.stack([found[:, g, t] for t, g in enumerate(rows)], 1)
        return draws.mean(0), np.cov(draws.T) + 1e-6 * np.eye(draws.shape[1])

    @cached_property
    def table(self) -> Tables:
        """The bank's curves where the abilities may lie."""
        mean, covariance = self._abilities
        return tables(self.bank, grid(mean, 0.7 * np.sqrt(np.diag(covariance))), residual=self.departures.residual)

    @cached_property
    def facet(self) -> Facets:
        """Facets of the questions; few, as every checkpoint has its own."""
        most = max(1, 120 // len(self.checkpoints))
        found = facets(self.bank, self.table, self.by, whole=not any(self.departures[:3]))
        return found if len(found.names) <= most else facets(self.bank, self.table, self.by, whole=True)

    @cached_property
    def prior(self) -> beliefs.Prior:
        """Of every checkpoint's ability for every facet, then of the forecast's."""
        mean, covariance = self._abilities
        s, f = len(self.names), len(self.facet.names)
        of = np.concatenate([np.repeat(np.arange(s), f), [s]])
        general = covariance[np.ix_(of, of)]
        own = np.zeros_like(general)
        own[: s * f, : s * f] = np.kron(np.eye(s), covariance_of_departures(self.facet, self.departures))
        each = np.stack([general + scale**2 * own for scale in self.departures.scales])
        return beliefs.Prior(np.log(self.departures.weights), np.tile(mean[of], (len(each), 1)), each)

    @cached_property
    def _values(self) -> Floats:
        """The forecast: mean curve of the benchmark's questions, at the last ability."""
        weight = Accuracy(self.benchmark).on(self.bank, self.table, self.facet).member
        out = np.zeros((self.prior.mean.shape[1], len(self.table.nodes)))
        out[-1] = weight @ self.table.mean
        return out

    @cached_property
    def _questions(self) -> tuple[np.ndarray, Candidates]:
        return sorted_questions(self.bank, self.facet, self.table)

    # The session.

    def start(self, seed: int = 0) -> State:
        """State of a new session; answers are kept under "checkpoint / item"."""
        return State(check_seed(seed), self.fingerprint)

    def next(self, state: State, n: int | None = None) -> Any:
        """The next (checkpoint, item); None where a stop rule holds. With ``n`` a list of so many pairs for one."""
        chosen: list[tuple[str, str]] = []
        for _ in range(1 if n is None else n):
            if self.reason(state) is not None:
                break
            chosen.append(self._choose(state))
            state = replace(state, waiting=(*state.waiting, " / ".join(chosen[-1])))
        if n is None:
            return chosen[0] if chosen else None
        return chosen

    def answer(self, state: State, pair: tuple[str, str], value: Any, trials: int | None = None) -> State:
        """The state with one answer more; as :meth:`AdaptiveTest.answer`."""
        name, item = (str(x) for x in pair)
        if name not in self.names:
            raise check.unknown([name], self.names, "checkpoint")
        if item not in positions(self.bank):
            raise check.unknown([item], self.bank.items.index, "item of the bank is called")
        label = f"{name} / {item}"
        if label in (a.item for a in state.answers):
            raise InputError(f"checkpoint {name!r} has answered item {item!r} already in this session")
        default = int(self.bank.items["trials"].iloc[positions(self.bank)[item]])
        return state.with_answer(checked_answer(KINDS[self.bank.likelihood], label, value, trials, default))

    def reason(self, state: State) -> str | None:
        """Why the session is over; None while it goes on."""
        if not isinstance(state, State) or state.test != self.fingerprint:
            raise InputError("this is no state of this plan; start one with plan.start")
        left = self._left(state)
        cheapest = float(self.prices[left.any(1)].min()) if left.any() else None
        found = self.stop.before(len(state.asked), self.spent(state), cheapest)
        if found is None and self.stop.sd is not None:
            belief = self._target(self._posterior(state, waiting=False))
            found = self.stop.after(len(state.answers), float(np.sqrt(belief.variance)), np.inf, None, 1.0)
        return found

    def result(self, state: State, mass: float = 0.9) -> xr.Dataset:
        """The forecast now: mean, sd, lower, upper of the accuracy; and cost, n_answered, by_checkpoint (answers)."""
        check_mass(mass)
        found = self._posterior(state, waiting=False)
        belief = self._target(found)
        q = np.exp(np.asarray(found.log_weight))
        at, weight = np.asarray(found.at)[:, -1], q[:, None] * np.asarray(found.weight)[:, -1]
        order = np.argsort(at, axis=None)
        below = np.cumsum(weight.ravel()[order]) - weight.ravel()[order] / 2
        ability = np.interp([(1 - mass) / 2, (1 + mass) / 2], below, at.ravel()[order])
        ends = np.interp(ability, self.table.nodes, self._values[-1])
        asked = pd.Series([a.item.rpartition(" / ")[0] for a in state.answers]).value_counts()
        return xr.Dataset(
            {
                "mean": belief.mean,
                "sd": float(np.sqrt(max(belief.variance, 0.0))),
                "lower": ends[0],
                "upper": ends[1],
                "cost": self.spent(state),
                "n_answered": sum(a.value is not None for a in state.answers),
                "by_checkpoint": ("checkpoint", asked.reindex(self.names, fill_value=0).to_numpy()),
            },
            coords={"checkpoint": self.names},
            attrs={"interval": "equal-tailed", "mass": mass, "reason": self.reason(state) or "not stopped"},
        )

    def spent(self, state: State) -> float:
        """Cost of the pairs asked."""
        place = {name: i for i, name in enumerate(self.names)}
        return float(sum(self.prices[place[pair.rpartition(" / ")[0]]] for pair in state.asked))

    # Inside.

    def _pair(self, label: str) -> tuple[int, int]:
        name, _, item = label.rpartition(" / ")
        return self.names.index(name), positions(self.bank)[item]

    def _left(self, state: State) -> np.ndarray:
        left = np.ones((len(self.names), self.bank.n_items), bool)
        for label in state.asked:
            left[self._pair(label)] = False
        if self.stop.max_cost is not None:
            affordable = self.prices <= self.stop.max_cost * (1 + 1e-9) - self.spent(state)
            if (left & affordable[:, None]).any():
                left &= affordable[:, None]
        return left

    def _posterior(self, state: State, waiting: bool = True) -> beliefs.Posterior:
        f = len(self.facet.names)
        likelihood = np.zeros((len(self.names) * f, len(self.table.nodes)))
        for a in sorted((a for a in state.answers if a.value is not None), key=lambda a: a.item):
            s, j = self._pair(a.item)
            share = float(a.value or 0.0) / (a.trials or 1)
            likelihood[s * f + self.facet.of_item[j]] += answer_curve(self.bank, self.table, j, share, a.trials)
        with jax.enable_x64(True):
            found = beliefs.posterior(self.prior, self.table.nodes, likelihood)
            for label in state.waiting if waiting else ():
                s, j = self._pair(label)
                k = s * f + int(self.facet.of_item[j])
                likelihood[k] += beliefs.as_expected(
                    found, self.table.nodes, k, self.table.mean[j], self.table.variance[j]
                )
                found = beliefs.posterior(self.prior, self.table.nodes, likelihood)
        return found

    def _target(self, found: beliefs.Posterior, values: Floats | None = None) -> Believed:
        with jax.enable_x64(True):
            return believed(found, self.table.nodes, self._values if values is None else values)

    def _choose(self, state: State) -> tuple[str, str]:
        rng = np.random.default_rng([state.seed, 31, len(state.asked)])
        left, (order, questions) = self._left(state), self._questions
        f, s = len(self.facet.names), len(self.names)
        if self.policy == "random":
            pick = int(rng.choice(np.flatnonzero(left.ravel())))
        else:
            found = self._posterior(state)
            if self.policy == "variance":
                whole = self._target(found)
                each = [
                    whole._replace(weight=whole.weight[i * f : (i + 1) * f], pull=whole.pull[i * f : (i + 1) * f])
                    for i in range(s)
                ]
            else:
                each = [self._own(found, i, f) for i in range(s)]
            score = np.empty((s, self.bank.n_items))
            score[:, order] = gains_of_all(questions, each) / self.prices[:, None]
            pick = best(score.ravel(), left.ravel(), rng)
        i, j = np.unravel_index(pick, left.shape)
        return self.names[int(i)], str(self.bank.items.index[int(j)])

    def _own(self, found: beliefs.Posterior, i: int, f: int) -> Believed:
        """The mean of a checkpoint's abilities as the target."""
        values = np.zeros_like(self._values)
        values[i * f : (i + 1) * f] = self.table.nodes / f
        whole = self._target(found, values)
        return whole._replace(weight=whole.weight[i * f : (i + 1) * f], pull=whole.pull[i * f : (i + 1) * f])
