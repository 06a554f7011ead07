"""Where a forecast is wanted: compute (or parameters and tokens), group and run, checked against the fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import ArrayLike

from bayes_irsl._options import reals
from bayes_irsl.covariates import Layout, numbers
from bayes_irsl.errors import InputError
from bayes_irsl.kernels import Points

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Places:
    """T covariate settings for each of G groups.

    Attributes
    ----------
    covariates : float (T,) each, by name; always with "compute".
    coordinates : float (T, C), decades from the fit's reference.
    beyond : float (T,), decades outside the range of the fitted subjects, 0 inside (the larger of the coordinates').
    pools : names of the groups, "new" for one that is not in the fit.
    group, run : int (G,) and (T,) codes; negative ones are new.
    extra : float (T, E), the fit's other covariates, standardised, or None.
    beyond_extra : float (T,) each, by name: how far outside the fitted range, in the covariate's unit.
    """

    covariates: dict[str, Floats]
    coordinates: Floats
    beyond: Floats
    pools: tuple[str, ...]
    group: npt.NDArray[np.int32]
    run: npt.NDArray[np.int32]
    extra: Floats | None
    beyond_extra: dict[str, Floats]

    def points(self, place: Layout, n_dimensions: int) -> tuple[Points, npt.NDArray[np.int32]]:
        """Points (D G T), and the new subject of each."""
        t, g = len(self.coordinates), len(self.pools)
        # The same setting in two groups is two runs.
        run = np.where(self.run < 0, self.run - t * np.arange(g)[:, None], self.run)
        return place.points(
            n_dimensions,
            np.tile(self.coordinates, (g, 1)),
            np.repeat(self.group, t),
            run.ravel().astype(np.int32),
            None if self.extra is None else np.tile(self.extra, (g, 1)),
        )


def places(
    place: Layout,
    *,
    compute: ArrayLike | None = None,
    params: ArrayLike | None = None,
    tokens: ArrayLike | None = None,
    tokens_per_param: float | None = None,
    pool: str | Sequence[str | None] | None = None,
    run: str | Sequence[str | None] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Places:
    """Check what is asked for against the fit's covariates, groups and runs; raises InputError where they differ."""
    given = {
        k: _positive(k, v) for k, v in (("compute", compute), ("params", params), ("tokens", tokens)) if v is not None
    }
    if place.covariates == ("compute",):
        if set(given) == {"params", "tokens"}:
            given["compute"] = 6 * given["params"] * given["tokens"]
        if "compute" not in given:
            raise InputError("this fit runs over compute: pass compute= in FLOP (or params= and tokens=)")
        values = {"compute": given["compute"]}
    else:
        if "compute" in given and tokens_per_param is not None:
            ratio = float(_positive("tokens_per_param", tokens_per_param)[0])
            size = np.sqrt(given["compute"] / (6 * ratio))
            given = {"params": size, "tokens": ratio * size}
        if set(given) != {"params", "tokens"}:
            raise InputError(
                f"this fit runs over parameters and tokens, got {sorted(given) or 'neither'}: pass params= and "
                "tokens=, or compute= with tokens_per_param= (20 is about Chinchilla's)"
            )
        sizes = sorted({len(given["params"]), len(given["tokens"])} - {1})
        if len(sizes) > 1:
            raise InputError(f"{sizes} values of params and tokens: expected as many of both, or one of either")
        both = np.broadcast_arrays(given["params"], given["tokens"])
        values = {"params": both[0], "tokens": both[1], "compute": 6 * both[0] * both[1]}
    coordinates = place.relative(values)
    low, high = place.coordinates.min(0), place.coordinates.max(0)
    beyond = np.maximum(np.maximum(coordinates - high, low - coordinates), 0).max(1)
    pools = _labels(pool)
    if pools != (None,) and not place.grouped:
        raise InputError(f"pool={pool!r}: this fit has no groups; fit AbilityTrajectory(pool='family') for that")
    runs = _labels(run) * (len(coordinates) if len(_labels(run)) == 1 else 1)
    if len(runs) != len(coordinates):
        raise InputError(f"{len(runs)} runs for {len(coordinates)} places: expected one, or one for each")
    others, beyond_extra = _extra(place, {} if extra is None else extra, len(coordinates))
    return Places(
        covariates=values,
        coordinates=coordinates,
        beyond=beyond,
        pools=tuple("new" if p is None else p for p in pools),
        group=np.array([-1 - i if p is None else place.code("pool", p) for i, p in enumerate(pools)], np.int32),
        run=np.array([-1 - i if r is None else place.code("run", r) for i, r in enumerate(runs)], np.int32),
        extra=others,
        beyond_extra=beyond_extra,
    )


def _extra(place: Layout, given: Mapping[str, Any], n: int) -> tuple[Floats | None, dict[str, Floats]]:
    """The other covariates (n, E), standardised, and how far beyond the fitted range each is."""
    if not isinstance(given, Mapping) or set(given) != set(place.extras):
        got = sorted(given) if isinstance(given, Mapping) else given
        raise InputError(
            f"extra = {got}: this fit has {list(place.extras) or 'no other covariates'}; pass extra={{name: "
            "value or one for each place} for exactly those"
        )
    if place.extra is None:
        return None, {}
    columns, beyond = [], {}
    for k, name in enumerate(place.extras):
        scalar = isinstance(given[name], str) or np.ndim(given[name]) == 0
        value = numbers([given[name]] if scalar else given[name], name)
        if value.shape not in ((1,), (n,)) or not np.isfinite(value).all():
            raise InputError(f"extra[{name!r}] = {given[name]!r}: expected one finite value, or one for each of {n}")
        column = (np.broadcast_to(value, n) - place.extra_reference[k]) / place.extra_sd[k]
        low, high = place.extra[:, k].min(), place.extra[:, k].max()
        columns.append(column)
        beyond[name] = np.maximum(np.maximum(column - high, low - column), 0) * place.extra_sd[k]
    return np.stack(columns, 1), beyond


def _labels(value: Any) -> tuple[str | None, ...]:
    if value is None or isinstance(value, str):
        return (value,)
    if not isinstance(value, Sequence | np.ndarray | pd.Index) or not len(value):
        raise InputError(f"pool or run = {value!r}: expected a name, None for a new one, or a list of such")
    return tuple(value)


def _positive(name: str, value: ArrayLike) -> Floats:
    expected = "one or more finite positive numbers (FLOP, parameters, tokens)"
    found = reals(name, value, expected)
    bad = ~(np.isfinite(found) & (found > 0))
    if bad.any():
        raise InputError(f"{name} = {found[bad][0]}: expected {expected}")
    return found
