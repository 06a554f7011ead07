"""The state of a test: what was asked and answered, immutable, saved as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bayes_irsl._files import replacing
from bayes_irsl.errors import InputError

FORMAT = "bayes_irsl.adaptive.State 1"


@dataclass(frozen=True)
class Answer:
    """One answer: a value in the bank's form (0/1, successes, share), None where it is missing; samples behind it."""

    item: str
    value: float | None
    trials: int | None = None


@dataclass(frozen=True)
class State:
    """Answers so far, in the order in which they came; questions given out and not answered yet; what may not be asked.

    Attributes
    ----------
    seed : int
    test : str
        Fingerprint of the test (bank, target, options) that the state belongs to.
    answers : tuple of Answer
    waiting : tuple of str
        Questions given out with ``test.give``, whose answers may come late.
    excluded : tuple of str
    """

    seed: int
    test: str
    answers: tuple[Answer, ...] = ()
    waiting: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def asked(self) -> tuple[str, ...]:
        """Questions answered, missing ones among them, and questions waiting for their answers."""
        return (*(a.item for a in self.answers), *self.waiting)

    def with_answer(self, answer: Answer) -> State:
        """With one answer more, and its question no longer waited for."""
        rest = tuple(item for item in self.waiting if item != answer.item)
        return replace(self, answers=(*self.answers, answer), waiting=rest)

    def to_json(self) -> str:
        """The state as one line of JSON; floats are kept to the last bit."""
        return json.dumps({"format": FORMAT, **asdict(self)}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> State:
        """From :meth:`to_json`; InputError where the text is no state."""
        try:
            found = json.loads(text)
            if found.pop("format") != FORMAT:
                raise InputError(f"a state of another version; expected {FORMAT!r}")
            answers = tuple(Answer(**a) for a in found.pop("answers"))
            plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}
            return cls(answers=answers, **plain)
        except InputError:
            raise
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise InputError(f"this is no state of a test ({error}); one is written by state.to_json()") from error

    def save(self, path: str | Path) -> Path:
        """Write the state to a file, through a second one, so that a broken run leaves no half of it."""
        path = Path(path)
        with replacing(path) as part:
            Path(part).write_text(self.to_json() + "\n", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: str | Path) -> State:
        """Read what :meth:`save` wrote."""
        path = Path(path)
        if not path.is_file():
            raise InputError(f"there is no file {str(path)!r}; a state is written by state.save(path)")
        return cls.from_json(path.read_text(encoding="utf-8"))


def checked_answer(kinds: tuple[str, ...], item: str, value: Any, trials: Any, default: int) -> Answer:
    """An answer in the bank's form, or an error that says what was expected."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return Answer(item, None)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(
            f"answer to item {item!r}: {value!r}; expected a number, or None where it is missing"
        ) from None
    if "count" in kinds:
        n = default if trials is None else trials
        if isinstance(n, bool) or n != int(n) or n < 1:
            raise InputError(f"answer to item {item!r}: trials = {n!r}; expected a whole number of at least 1")
        if number != int(number) or not 0 <= number <= n:
            raise InputError(
                f"answer to item {item!r}: {value!r} right of {int(n)} samples; expected a whole number from 0 to "
                f"{int(n)}. Pass trials= where there were more"
            )
        return Answer(item, number, int(n))
    if trials is not None:
        raise InputError(
            f"answer to item {item!r}: trials = {trials!r}, but the bank's answers are {' or '.join(kinds)}"
        )
    if "binary" in kinds and number not in (0.0, 1.0):
        raise InputError(f"answer to item {item!r}: {value!r}; expected 0 or 1")
    if not 0 <= number <= 1:
        raise InputError(f"answer to item {item!r}: {value!r}; expected a number from 0 to 1")
    return Answer(item, number)
