"""Pieces of a page: escaped text, tables, badges, figures. No scripts, nothing from elsewhere."""

from __future__ import annotations

import base64
import io
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayes_irsl.diagnostics import Diagnostics
from bayes_irsl.errors import InputError
from bayes_irsl.plots.style import figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKS = {"PASS": "✓", "REVIEW": "!", "FAIL": "✗"}

# Every rule stands under .bayes-irsl, so that a report shown in a notebook leaves the notebook's own look alone.
STYLE = """
.bayes-irsl{font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:#222;background:#fff;
 max-width:62rem;margin:0 auto;padding:1rem;overflow-wrap:break-word}
.bayes-irsl h1{font-size:1.6rem;margin:.2rem 0}
.bayes-irsl h2{font-size:1.2rem;margin:2rem 0 .5rem;border-bottom:1px solid #ddd;padding-bottom:.2rem}
.bayes-irsl h3{font-size:1rem;margin:1.2rem 0 .3rem}
.bayes-irsl p{margin:.4rem 0}
.bayes-irsl .wide{overflow-x:auto;margin:.5rem 0}
.bayes-irsl table{border-collapse:collapse;font-size:.86rem;background:#fff;color:#222;margin:0}
.bayes-irsl th,.bayes-irsl td{padding:.25rem .6rem;border-bottom:1px solid #e5e5e5;text-align:left;vertical-align:top}
.bayes-irsl thead th{border-bottom:2px solid #bbb}
.bayes-irsl .number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.bayes-irsl tbody tr:nth-child(odd){background:#fafafa}
.bayes-irsl figure{margin:1rem 0;display:inline-block;vertical-align:top;width:min(100%,30rem)}
.bayes-irsl figure.full{width:min(100%,44rem)}
.bayes-irsl img{width:100%;height:auto}
.bayes-irsl .badge{display:inline-block;min-width:5.2rem;padding:.1rem .5rem;border-radius:.3rem;font-weight:700;
 font-size:.8rem;color:#fff;text-align:center;box-sizing:border-box}
.bayes-irsl .PASS{background:#00694d}.bayes-irsl .REVIEW{background:#8a5a00}.bayes-irsl .FAIL{background:#a83e00}
.bayes-irsl .model{background:#f6f6f6;padding:.6rem 1rem;border-left:3px solid #0072B2;font-family:Georgia,serif;
 overflow-x:auto}
.bayes-irsl pre{background:#f6f6f6;padding:.8rem;overflow-x:auto;font-size:.82rem;white-space:pre-wrap}
.bayes-irsl summary{cursor:pointer;color:#005a8f}
.bayes-irsl .faint{color:#555;font-size:.88rem}
@media (max-width:40rem){
 .bayes-irsl{padding:.6rem;font-size:15px}
 .bayes-irsl table.checks thead{display:none}
 .bayes-irsl table.checks tr{display:block;padding:.5rem 0;border-bottom:1px solid #ccc}
 .bayes-irsl table.checks td{display:block;border:0;padding:.1rem .3rem;text-align:left}
 .bayes-irsl table.checks td[data-label]::before{content:attr(data-label) ": ";color:#555}}
@media print{
 .bayes-irsl{max-width:none;font-size:10pt;padding:0}
 .bayes-irsl figure,.bayes-irsl tr{break-inside:avoid}
 .bayes-irsl h2,.bayes-irsl h3{break-after:avoid}
 .bayes-irsl .wide{overflow:visible}
 .bayes-irsl .badge{border:1px solid #222;color:#222;background:none}}
"""


def document(title: str, body: str) -> str:
    """A whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>body{{margin:0}}</style></head><body>{body}</body></html>\n"
    )


def fragment(body: str) -> str:
    """A piece that carries its own style, for a page or a notebook."""
    return f'<style>{STYLE}</style><div class="bayes-irsl">{body}</div>'


def badge(verdict: str) -> str:
    """PASS, REVIEW or FAIL as a sign, a word and a colour."""
    return f'<span class="badge {escape(verdict)}">{MARKS[verdict]} {escape(verdict)}</span>'


def number(value: Any, digits: int = 2) -> str:
    """A number as text: whole numbers whole, others with ``digits`` decimals or three significant digits."""
    if value is None or value is pd.NaT or (isinstance(value, float | np.floating) and not np.isfinite(value)):
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else ""
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if not isinstance(value, float | np.floating):
        return str(value)
    exact = float(value)
    if exact != 0 and abs(exact) < 10.0**-digits:
        return f"{exact:.1e}"
    return f"{exact:,.{digits}f}" if abs(exact) < 1e4 else f"{exact:.3g}"


def with_interval(mean: Any, lower: Any, upper: Any, digits: int = 2) -> list[str]:
    """``0.52 [0.31, 0.73]`` for every row, all three with the same number of decimals."""

    def text(m: float, low: float, high: float) -> str:
        largest = max(abs(m), abs(low), abs(high))
        decimals = digits if largest >= 10.0**-digits else digits + 3
        style = f",.{decimals}f" if largest < 1e5 else ".3g"
        # adding 0 turns -0.0 into 0.0
        m, low, high = (round(v, decimals) + 0.0 for v in (m, low, high))
        return f"{m:{style}} [{low:{style}}, {high:{style}}]"

    rows = zip(mean, lower, upper, strict=True)
    return [text(float(m), float(a), float(b)) if np.isfinite(m) else "–" for m, a, b in rows]


def merge_intervals(frame: pd.DataFrame, digits: int = 2) -> pd.DataFrame:
    """Columns x, x_lower, x_upper (or x, lower, upper) become one column x of "0.52 [0.31, 0.73]"."""
    out = frame.copy()
    named = [c.removesuffix("_lower") for c in frame.columns if str(c).endswith("_lower")]
    pairs = [(name, f"{name}_lower", f"{name}_upper") for name in named]
    if "lower" in frame.columns:
        pairs.append((frame.columns[list(frame.columns).index("lower") - 1], "lower", "upper"))
    for name, lower, upper in pairs:
        out[name] = with_interval(frame[name], frame[lower], frame[upper], digits)
        out = out.drop(columns=[lower, upper])
    return out


def table(frame: pd.DataFrame, caption: str = "", *, index: str | None = None, digits: int = 2) -> str:
    """A data frame as a table that scrolls by itself where it is too wide; everything escaped."""
    numeric = [pd.api.types.is_numeric_dtype(frame[c]) or _holds_intervals(frame[c]) for c in frame.columns]
    sides = ["number" if is_number else "" for is_number in numeric]
    titles = [str(name).replace("_", " ") for name in (index or frame.index.name or "", *frame.columns)]
    head = "".join(f'<th class="{side}">{escape(title)}</th>' for title, side in zip(titles, ["", *sides], strict=True))
    rows = []
    for label, values in zip(frame.index, frame.itertuples(index=False, name=None), strict=True):
        cells = "".join(
            f'<td class="{side}">{escape(number(value, digits))}</td>'
            for value, side in zip(values, sides, strict=True)
        )
        rows.append(f"<tr><td>{escape(number(label, digits))}</td>{cells}</tr>")
    named = f'<p class="faint">{escape(caption)}</p>' if caption else ""
    return f'{named}<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _holds_intervals(column: pd.Series) -> bool:
    return len(column) > 0 and all(isinstance(v, str) and (v.endswith("]") or v == "–") for v in column)


def facts(pairs: Mapping[str, Any]) -> str:
    """A table of two columns."""
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(number(v))}</td></tr>" for k, v in pairs.items())
    return f'<div class="wide"><table><tbody>{rows}</tbody></table></div>'


def again(fit: Any, file: str) -> str:
    """The code that loads a fit from a file and makes it anew."""
    code = (
        "import bayes_irsl as bi\n\n"
        f"# responses.data_hash == {json.loads(fit.tree.attrs['data_hash'])!r}\n"
        f"fit = bi.load({file!r})  # after fit.save({file!r}); its spec is fit.spec\n"
        f"again = bi.fit(fit.spec, fit.responses, method={fit.method!r}, seed={fit.seed})"
    )
    return f"<pre>{escape(code)}</pre>"


def details(summary: str, body: str) -> str:
    """A part that opens on a click, without a script."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def figure(ax: Axes, alt: str, *, full: bool = False) -> str:
    """A plot as an image inside the page."""
    data = io.BytesIO()
    with warnings.catch_warnings():
        # names in scripts that the plot's font lacks are shown as boxes; the tables have them in full
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure_of(ax).savefig(data, format="png", dpi=110, facecolor="white", pil_kwargs={"optimize": True})
    code = base64.b64encode(data.getvalue()).decode("ascii")
    kind = ' class="full"' if full else ""
    return f'<figure{kind}><img alt="{escape(alt)}" src="data:image/png;base64,{code}"></figure>'


class Page(ABC):
    """What all reports do with their checks and their HTML: show it in notebooks, write it to a file."""

    def __init__(self, fit: Any) -> None:
        self.fit = fit

    def __repr__(self) -> str:
        return repr(self.diagnostics)

    @property
    @abstractmethod
    def diagnostics(self) -> Diagnostics:
        """All checks."""

    @property
    @abstractmethod
    def _fragment(self) -> str:
        """The report as HTML, without head and body."""

    def _whole(self, title: str, line: str, parts: Mapping[str, str]) -> str:
        """A heading with the verdict, a line about the data, and the parts by heading."""
        head = f"<h1>{title} {badge(self.verdict)}</h1><p>{line}</p>"
        return fragment(head + "".join(f"<h2>{escape(k)}</h2>{v}" for k, v in parts.items()))

    @property
    def verdict(self) -> str:
        """The worst verdict of all checks: "PASS", "REVIEW" or "FAIL"."""
        return self.diagnostics.verdict

    @cached_property
    def html(self) -> str:
        """The whole page."""
        return document(f"bayes_irsl: {self.verdict}", self._fragment)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file and return its path; InputError where the folder is not there."""
        path = Path(path)
        if not path.parent.is_dir():
            raise InputError(f"cannot write {path}: there is no folder {path.parent}")
        path.write_text(self.html, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        return self._fragment
