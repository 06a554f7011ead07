"""A calibrated bank of questions: posterior draws of its items on a stated scale, saved in one file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayes_irsl import _bank_file, _bank_fit
from bayes_irsl import _validate as check
from bayes_irsl.answers import LIKELIHOODS
from bayes_irsl.cells import STANDARD_SCALE
from bayes_irsl.errors import InputError

if TYPE_CHECKING:
    from bayes_irsl.fitting import Fit
    from bayes_irsl.linking import Link

_COLUMNS = {"benchmark": "benchmark", "dimension": "ability", "curve": "2pl", "trials": 1, "link": 0}


@dataclass(frozen=True, eq=False, repr=False)
class ItemBank:
    """Items whose curves are known up to their posterior: mu = c + (1 - c) sigmoid(a (theta - b)).

    Build it with :meth:`from_fit` or :meth:`from_parameters`; score subjects with :func:`bayes_irsl.score`.

    Attributes
    ----------
    a, b : (draw, item)
        Posterior draws of discrimination (> 0) and difficulty (higher is harder).
    items : DataFrame, index "item"
        One row an item. Columns: benchmark, dimension (the ability that the item draws on), curve, trials
        (samples behind one answer), link (0: calibrated on this scale; k: brought here by link k), others.
    likelihood : str
        How answers arise: "bernoulli", "binomial", "beta-binomial", "beta", "ordered-beta", "zero-one-beta".
    c : (draw, item) or None
        Guessing floor; None where no item has one.
    phi : (draw, item) or None
        Precision of Beta and beta-binomial answers.
    edges : mapping of name to (draw, item)
        Parameters of the point masses at 0 and 1.
    squeeze : int or None
        n of the rule y -> (y (n - 1) + 0.5) / n under which a Beta bank was calibrated.
    prior : (mean, sd)
        Ability of a new subject before any answer.
    theta_range : mapping of dimension to (lowest, highest)
        Posterior mean abilities of the calibration subjects; empty where unknown.
    scale, scale_id : str
        What the scale is, and a name that two banks share when they are on one scale.
    links : (link, draw, 2) or None
        Error (r, s) of each link in every draw: theta on this scale = r * (theta by the mean link) + s. It is
        common to all items of the link, so that more answers do not average it away.
    """

    a: np.ndarray
    b: np.ndarray
    items: pd.DataFrame
    likelihood: str = "bernoulli"
    c: np.ndarray | None = None
    phi: np.ndarray | None = None
    edges: Mapping[str, np.ndarray] = field(default_factory=dict)
    squeeze: int | None = None
    prior: tuple[float, float] = (0.0, 1.0)
    theta_range: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    scale: str = STANDARD_SCALE
    scale_id: str = "given"
    links: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.likelihood not in LIKELIHOODS:
            raise InputError(f"likelihood {self.likelihood!r}: expected one of {list(LIKELIHOODS)}")
        items = self.items.copy()
        items.index = pd.Index(check.check_labels(items.index, "item"), name="item")
        check.check_unique(np.asarray(items.index), "item")
        for name, default in _COLUMNS.items():
            if name not in items:
                items[name] = default
        object.__setattr__(self, "items", items)
        for name in ("b", "a", "c", "phi"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, self._checked(name, getattr(self, name)))
        edges = {name: self._checked(name, value) for name, value in self.edges.items()}
        object.__setattr__(self, "edges", MappingProxyType(edges))
        object.__setattr__(self, "theta_range", MappingProxyType(dict(self.theta_range)))
        have = {*edges, *(["log_phi"] if self.phi is not None else [])}
        missing = [name for name in LIKELIHOODS[self.likelihood].parameters if name not in have]
        if missing:
            wanted = ["phi" if name == "log_phi" else name for name in missing]
            raise InputError(f"likelihood {self.likelihood!r} needs draws of {wanted}; pass them to the bank")
        if not (np.isfinite(self.prior).all() and self.prior[1] > 0):
            raise InputError(f"prior = {self.prior}: expected (mean, sd) with a positive sd")

    def _checked(self, name: str, value: Any) -> np.ndarray:
        """The draws as a read-only (draw, item) array of floats, each of them possible."""
        shape = (np.shape(self.b)[0] if np.ndim(self.b) == 2 else 1, len(self.items))
        if 0 in shape:
            raise InputError(f"a bank needs at least one draw of one item; got (draw, item) = {shape}")
        draws = np.asarray(value)
        draws = draws if np.issubdtype(draws.dtype, np.floating) else draws.astype(float)
        try:
            draws = np.broadcast_to(draws, shape)
        except ValueError:
            raise InputError(f"{name} has shape {draws.shape}; expected (draw, item) = {shape}") from None
        self._refuse(name, draws, ~np.isfinite(draws), "finite")
        if name in ("a", "phi"):
            self._refuse(name, draws, draws <= 0, "positive")
        if name == "c":
            self._refuse(name, draws, (draws < 0) | (draws >= 1), "in [0, 1)")
        return draws

    def _refuse(self, name: str, draws: np.ndarray, wrong: np.ndarray, expected: str) -> None:
        columns = np.flatnonzero(wrong.any(0))
        if columns.size:
            first = draws[wrong[:, columns[0]], columns[0]][0]
            advice = ". Recode items that abler subjects do worse on, or drop them" if name == "a" else ""
            labels = check.some(self.items.index[columns], 10)
            raise InputError(f"{name} of item {labels} must be {expected}; got {first:g}{advice}")

    @classmethod
    def from_fit(cls, fit: Fit, draws: int = 200, seed: int = 0, *, anchor: ItemBank | None = None) -> ItemBank:
        """Bank of the items of a fit: some of its posterior draws, taken at random without replacement.

        Parameters
        ----------
        fit : Fit
            Of an :class:`bayes_irsl.ItemResponse`.
        draws : int
            Draws to keep; all of them where the fit has fewer.
        seed : int
        anchor : ItemBank, optional
            The bank on which the fit was anchored: the new bank is on its scale too.

        Returns
        -------
        ItemBank
        """
        anchored_on = json.loads(fit.tree.attrs.get("anchored_on", '""'))
        if anchored_on != ("" if anchor is None else anchor.scale_id):
            raise InputError(
                f"the fit is {f'anchored on the bank of scale {anchored_on!r}' if anchored_on else 'not anchored'}, "
                f"anchor is {'None' if anchor is None else f'the bank of scale {anchor.scale_id!r}'}: pass the bank "
                "that the fit was anchored on, or none"
            )
        if anchor is None:
            where: dict[str, Any] = {"scale_id": fit.responses.data_hash[:16]}
        else:
            where = {"prior": anchor.prior, "scale": anchor.scale, "scale_id": anchor.scale_id}
        return cls(**_bank_fit.arguments(fit, draws, seed), **where)

    @classmethod
    def from_parameters(
        cls,
        a: Any,
        b: Any,
        c: Any = 0.0,
        *,
        phi: Any = None,
        items: pd.DataFrame | Sequence[str] | None = None,
        likelihood: str = "bernoulli",
        **options: Any,
    ) -> ItemBank:
        """Bank of items with known parameters (one draw), or with draws from elsewhere.

        Parameters
        ----------
        a, b, c, phi : float, (item,) or (draw, item)
            Discrimination, difficulty, guessing floor, precision; a = 1 is the Rasch model.
        items : DataFrame (index: labels) or list of labels, optional
            "0", "1", ... where it is not given.
        likelihood : str
        **options
            Further attributes of the bank: edges, squeeze, prior, theta_range, scale, scale_id.

        Returns
        -------
        ItemBank

        Raises
        ------
        InputError
            Slopes that are not positive, by item, and whatever else cannot be used.
        """
        try:
            given = [np.atleast_2d(np.asarray(v, float)) for v in (a, b, c, np.nan if phi is None else phi)]
            shape = np.broadcast_shapes(*(v.shape for v in given))
        except (TypeError, ValueError) as error:
            raise InputError(f"a, b, c, phi must be numbers of one shape, (item,) or (draw, item): {error}") from None
        if isinstance(items, pd.DataFrame):
            frame = items
        else:
            labels = [str(i) for i in range(shape[1])] if items is None else list(items)
            frame = pd.DataFrame(index=pd.Index(labels, name="item"))
        if len(frame) != shape[1]:
            raise InputError(f"{len(frame)} labels for {shape[1]} items; give one label an item")
        a, b, c, precision = (np.broadcast_to(v, shape) for v in given)
        if "curve" not in frame:
            slopes = "1pl" if (a == a[:, :1]).all() else "2pl"
            frame = frame.assign(curve="3pl" if (c > 0).any() else slopes)
        floor = None if (c == 0).all() else c
        return cls(a, b, frame, likelihood, c=floor, phi=None if phi is None else precision, **options)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.a.shape[1]

    @property
    def n_draws(self) -> int:
        """Number of posterior draws."""
        return self.a.shape[0]

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the abilities that the items draw on."""
        return tuple(dict.fromkeys(self.items["dimension"].astype(str)))

    @classmethod
    def uncalibrated(cls, items: pd.DataFrame | Sequence[str], draws: int = 200, seed: int = 0) -> ItemBank:
        """Bank of questions that nobody has answered: all have the curve that a question may have before any answer.

        Difficulty ~ Normal(0, 1.5), log discrimination ~ Normal(0, 0.5), the same draws for all.

        Parameters
        ----------
        items : DataFrame (index: labels) or list of labels
        draws, seed : int
        """
        rng = np.random.default_rng([seed, 19])
        n = len(items)
        a = np.broadcast_to(np.exp(0.5 * rng.standard_normal((draws, 1))), (draws, n))
        b = np.broadcast_to(1.5 * rng.standard_normal((draws, 1)), (draws, n))
        frame = items if isinstance(items, pd.DataFrame) else pd.DataFrame(index=pd.Index(list(items), name="item"))
        return cls(a, b, frame.assign(n_answers=0), scale_id="uncalibrated")

    @cached_property
    def benchmarks(self) -> tuple[str, ...]:
        """Names of the benchmarks, in order of appearance."""
        return tuple(dict.fromkeys(self.items["benchmark"].astype(str)))

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """What scoring works out once a bank: arrays on the device and tables of curves."""
        return {}

    def select(self, items: Any) -> ItemBank:
        """The bank with only these items: labels in the order wanted, or a boolean mask."""
        asked = np.atleast_1d(np.asarray(items))
        if asked.dtype == bool:
            if asked.shape != (self.n_items,):
                raise InputError(f"a mask of items needs {self.n_items} values; got shape {asked.shape}")
            where = np.flatnonzero(asked)
        else:
            labels = asked.astype(str)
            where = self.items.index.get_indexer(pd.Index(labels))
            if (where < 0).any():
                raise check.unknown(labels[where < 0], self.items.index, "item")
        return replace(self, items=self.items.iloc[where], **self._each(lambda draws: draws[:, where]))

    def extend(self, other: ItemBank) -> ItemBank:
        """This bank and the items of another on the same scale; all items keep their parameters and curves.

        Raises
        ------
        InputError
            Another likelihood or scale (link and :meth:`rescale` first), or an item that both banks hold.
        """
        if (other.likelihood, other.squeeze) != (self.likelihood, self.squeeze):
            raise InputError(f"{self.likelihood!r} items and {other.likelihood!r} items cannot be in one bank")
        if other.scale_id != self.scale_id:
            raise InputError("the banks are on two scales; use bank.extend(other.rescale(link(bank, other)))")
        both = self.items.index.intersection(other.items.index)
        if len(both):
            raise InputError(f"item {check.some(both)} is in both banks; drop it from one with select")
        return _joined(self, other)

    def rescale(self, link: Link) -> ItemBank:
        """This bank on the scale that a link leads to: b -> A b + B, a -> a / A, draw by draw.

        The error of the link is kept apart as well, so that scoring does not average it away.
        """
        n = self.n_draws if self.n_draws > 1 else len(link.slope)
        slope, shift = link.resampled(n)
        before = np.broadcast_to([1.0, 0.0], (1, n, 2))
        if self.links is not None:
            before = np.concatenate([np.broadcast_to(self.links, (len(self.links), n, 2)), before])
        r = before[..., 0] * slope / link.slope_mean
        s = before[..., 1] * slope + shift - r * link.shift_mean
        in_link = self.items["link"].to_numpy()
        moved = self._each(lambda draws: np.broadcast_to(draws, (n, self.n_items)))
        moved |= {"a": moved["a"] / slope[:, None], "b": moved["b"] * slope[:, None] + shift[:, None]}
        ends = {name: link.apply_mean(np.array(values)) for name, values in self.theta_range.items()}
        return replace(
            self,
            **moved,
            items=self.items.assign(link=np.where(in_link > 0, in_link, len(before))),
            links=np.stack([r, s], -1),
            prior=link.prior,
            theta_range={name: (float(low), float(high)) for name, (low, high) in ends.items()},
            scale=link.scale,
            scale_id=link.scale_id,
        )

    def _each(self, change: Callable[[np.ndarray], np.ndarray]) -> dict[str, Any]:
        """Every array of draws, changed, as arguments of dataclasses.replace."""
        plain = {name: getattr(self, name) for name in ("a", "b", "c", "phi")}
        changed = {name: None if draws is None else change(draws) for name, draws in plain.items()}
        return {**changed, "edges": {name: change(draws) for name, draws in self.edges.items()}}

    def summary(self, mass: float = 0.9) -> pd.DataFrame:
        """Posterior mean, sd and equal-tailed interval of a and b of every item, beside its other columns."""
        tail = 100 * (1 - mass) / 2
        out = self.items.copy()
        for name in ("a", "b"):
            draws = getattr(self, name)
            out[f"{name}_mean"], out[f"{name}_sd"] = draws.mean(0), draws.std(0)
            out[f"{name}_lower"], out[f"{name}_upper"] = np.percentile(draws, [tail, 100 - tail], axis=0)
        if self.c is not None:
            out["c_mean"] = self.c.mean(0)
        out.attrs["interval"] = f"equal-tailed, {mass:.0%}"
        return out

    def save(self, path: str | Path) -> Path:
        """Write the bank to one NetCDF file and return its path."""
        return _bank_file.write(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> ItemBank:
        """Read a bank that :meth:`save` wrote; InputError where the file is none."""
        return cls(**_bank_file.read(Path(path)))

    def facts(self) -> dict[str, str]:
        """What the bank is, in a few lines of text."""
        curves = ", ".join(dict.fromkeys(self.items["curve"].astype(str)))
        sizes = self.items["benchmark"].astype(str).value_counts(sort=False)
        listed = [f"{name} ({n:,} items)" for name, n in sizes.items()]
        more = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
        facts = {
            "items": f"{self.n_items:,} with {self.n_draws:,} posterior draws, {self.likelihood} {curves}",
            "benchmarks": ", ".join(listed[:8]) + more,
            "scale": f"{self.scale}; a new subject is Normal({self.prior[0]:g}, {self.prior[1]:g})",
        }
        if len(self.dimensions) > 1:
            facts["abilities"] = f"{len(self.dimensions)}, scored one by one"
        if self.theta_range:
            ends = np.array(list(self.theta_range.values()))
            facts["calibrated on"] = f"abilities from {ends.min():.2f} to {ends.max():.2f}"
        if "prior_led" in self.items:
            share = self.items["prior_led"].mean()
            facts["prior-led"] = f"{share:.0%} of items ({_bank_fit.PRIOR_LED_MEANS})"
        if "no_variation" in self.items and self.items["no_variation"].any():
            facts["no variation"] = f"{int(self.items['no_variation'].sum()):,} items, answered alike by all"
        return facts

    def __repr__(self) -> str:
        return "\n".join(["ItemBank", *(f"  {name}: {text}" for name, text in self.facts().items())])

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in self.facts().items())
        return f"<table><caption>ItemBank</caption>{rows}</table>"


def _joined(first: ItemBank, second: ItemBank) -> ItemBank:
    """Both sets of items side by side, with as many draws as the smaller bank has."""
    n = min(first.n_draws, second.n_draws)

    def beside(left: np.ndarray | None, right: np.ndarray | None) -> np.ndarray:
        pair = ((left, first.n_items), (right, second.n_items))
        return np.concatenate([np.zeros((n, size)) if v is None else v[:n] for v, size in pair], axis=1)

    has_floor = first.c is not None or second.c is not None
    links = [bank.links[:, :n] for bank in (first, second) if bank.links is not None]
    in_link = second.items["link"].to_numpy()
    offset = 0 if first.links is None else len(first.links)
    added = second.items.assign(link=np.where(in_link > 0, in_link + offset, 0))
    ranges = dict(first.theta_range)
    for name, (low, high) in second.theta_range.items():
        known = ranges.get(name, (low, high))
        ranges[name] = (min(low, known[0]), max(high, known[1]))
    return replace(
        first,
        a=beside(first.a, second.a),
        b=beside(first.b, second.b),
        c=beside(first.c, second.c) if has_floor else None,
        phi=None if first.phi is None else beside(first.phi, second.phi),
        edges={name: beside(draws, second.edges[name]) for name, draws in first.edges.items()},
        items=pd.concat([first.items, added]),
        links=np.concatenate(links) if links else None,
        theta_range=ranges,
    )
