"""One check is one line: a verdict, a number, what was seen and what to do about it."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pandas as pd

from bayes_irsl.errors import InputError

VERDICTS = ("PASS", "REVIEW", "FAIL")


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Parameters
    ----------
    name : str
    verdict : "PASS" | "REVIEW" | "FAIL"
    value : float or str
        The number that the verdict rests on.
    detail, remedy : str
        One sentence on what was seen, one on what to do; after PASS there is nothing to do.
    table : DataFrame, optional
        All that was checked, worst first.
    """

    name: str
    verdict: str
    value: float | str
    detail: str
    remedy: str = ""
    table: pd.DataFrame = field(default_factory=pd.DataFrame, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise InputError(f"verdict {self.verdict!r}: expected one of {list(VERDICTS)}")
        if self.verdict == "PASS":
            object.__setattr__(self, "remedy", "Nothing to do.")


@dataclass(frozen=True)
class Diagnostics:
    """Checks of a fit, and the checks that could not be made with the reason."""

    checks: tuple[Check, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The worst verdict of all checks."""
        return max((c.verdict for c in self.checks), key=VERDICTS.index, default="PASS")

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        reason = f"; it was not made: {self.skipped[name]}" if name in self.skipped else ""
        raise InputError(f"no check {name!r}{reason}; there are {[c.name for c in self.checks]}")

    def __contains__(self, name: object) -> bool:
        return any(check.name == name for check in self.checks)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __len__(self) -> int:
        return len(self.checks)

    def to_frame(self) -> pd.DataFrame:
        """One row a check: verdict, value, detail, remedy."""
        rows = [(c.name, c.verdict, format_value(c.value), c.detail, c.remedy) for c in self.checks]
        return pd.DataFrame(rows, columns=["check", "verdict", "value", "detail", "remedy"]).set_index("check")

    def __repr__(self) -> str:
        lines = [f"Diagnostics: {self.verdict}"]
        for check in self.checks:
            lines.append(f"  {check.verdict:6} {check.name} = {format_value(check.value)}")
            text = check.detail if check.verdict == "PASS" else f"{check.detail} {check.remedy}"
            lines += textwrap.wrap(text, 100, initial_indent=" " * 9, subsequent_indent=" " * 9)
        lines += [f"  not made: {name} ({why})" for name, why in self.skipped.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><b>{html.escape(c.verdict)}</b></td>"
            + "".join(
                f"<td style='text-align:left'>{html.escape(text)}</td>"
                for text in (c.name, format_value(c.value), c.detail, c.remedy)
            )
            + "</tr>"
            for c in self.checks
        )
        head = "".join(f"<th>{title}</th>" for title in ("verdict", "check", "value", "what was seen", "what to do"))
        skipped = "".join(f"<li>{html.escape(f'{name}: {why}')}</li>" for name, why in self.skipped.items())
        foot = f"<p>Not made:</p><ul>{skipped}</ul>" if skipped else ""
        return f"<p><b>{self.verdict}</b></p><table><tr>{head}</tr>{rows}</table>{foot}"


def format_value(value: float | str) -> str:
    """A number with three or four significant digits, text as it is."""
    if isinstance(value, str):
        return value
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:.4g}" if abs(value) < 10 else f"{value:,.1f}"


def worst(value: float, review: float, fail: float) -> str:
    """Verdict of a value that is good while small (review <= fail) or good while large (review > fail)."""
    if review > fail:
        return worst(-value, -review, -fail)
    if not value <= fail:
        return "FAIL"
    return "PASS" if value <= review else "REVIEW"


def some(labels: list[str], most: int = 5) -> str:
    """The first labels as text, and how many more there are."""
    shown = ", ".join(str(label) for label in labels[:most])
    return shown if len(labels) <= most else f"{shown} and {len(labels) - most:,} more"
