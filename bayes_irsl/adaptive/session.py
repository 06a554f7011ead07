"""AdaptiveTest: ask, tell, and stop when enough is known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from bayes_irsl import _validate as check
from bayes_irsl._options import check_seed
from bayes_irsl.adaptive import policies, results, rules
from bayes_irsl.adaptive.departures import TYPICAL
from bayes_irsl.adaptive.facets import Spread
from bayes_irsl.adaptive.layout import Known, Layout, all_known, known, lay_out, positions
from bayes_irsl.adaptive.state import State, checked_answer
from bayes_irsl.adaptive.stopping import Stop
from bayes_irsl.adaptive.targets import Accuracy, Target
from bayes_irsl.bank import ItemBank
from bayes_irsl.errors import InputError
from bayes_irsl.spec import LIKELIHOODS as KINDS

Floats = npt.NDArray[np.floating]

_KEPT = 16  # states whose answers are kept worked out


@dataclass(frozen=True, eq=False, repr=False)
class AdaptiveTest:
    """Ask a new subject the questions that tell most about a target.

    >>> test = bi.AdaptiveTest(bank, target=bi.targets.Accuracy("mmlu"), stop=bi.Stop(sd=0.01, max_items=50))
    >>> state = test.start(seed=0)
    >>> while (item := test.next(state)) is not None:
    ...     state = test.answer(state, item, ask(item))
    >>> test.result(state)

    The next question has the smallest expected posterior variance of the target, by quadrature over curves that are
    averaged over the bank's draws. The subject's ability may depart from its general one by category and by how
    difficult questions are; how far subjects do is learned with :func:`departures`.

    Parameters
    ----------
    bank : ItemBank
    target : Ability, Accuracy, Better or PassAtK
        What to find out (``bi.targets``).
    stop : Stop
        When it is enough; the first rule that holds is recorded.
    policy : "variance", "fisher", "spanning", "fixed", "random", or a list of items
        "variance": as above. "fisher": most Fisher information at the posterior mean. "spanning": difficulties equally
        spaced. "fixed": the set that is best before any answer. A list: these, in this order.
    by : str, optional
        Column of the bank's items by which abilities may depart too, such as "category".
    departures : Spread
        How far abilities depart: of :func:`departures`, or what is typical.
    prior : (mean, sd), optional
        Ability before any answer; the bank's where it is not given.
    cost : str or mapping, optional
        Cost of every question, a column of the bank's items or numbers by item; the policy takes gain per cost.
    samples : tuple of int, optional
        For counts: numbers of samples that may be asked of a question. ``next`` then gives (item, samples), and a
        question costs its cost times the samples.
    content : mapping, optional
        Shares of the questions by value of the column ``content_by``; in any unit.
    exclude : items that may not be asked
    explore : float
        Share of questions chosen at random.
    among : int
        The question is drawn from so many of the best ones, so that sessions do not all ask the same.

    Raises
    ------
    InputError
        Options that cannot be used.
    """

    bank: ItemBank
    target: Target = Accuracy()  # noqa: RUF009
    stop: Stop = Stop()  # noqa: RUF009
    policy: str | Sequence[str] = "variance"
    by: str | None = None
    departures: Spread = TYPICAL
    prior: tuple[float, float] | None = None
    cost: Any = None
    samples: tuple[int, ...] | None = None
    content: Mapping[str, float] | None = None
    content_by: str = "category"
    exclude: Iterable[str] = ()
    explore: float = 0.0
    among: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.bank, ItemBank):
            raise InputError(f"AdaptiveTest needs an ItemBank; got {type(self.bank).__name__}")
        if not hasattr(self.target, "on"):
            raise InputError(f"target = {self.target!r}: expected one of bi.targets, such as bi.targets.Accuracy()")
        if not isinstance(self.stop, Stop):
            raise InputError(f"stop = {self.stop!r}: expected a bi.Stop, such as bi.Stop(max_items=50)")
        if isinstance(self.policy, str) and self.policy not in policies.POLICIES:
            raise check.unknown([self.policy], policies.POLICIES, "policy")
        if not 0 <= self.explore <= 1:
            raise InputError(f"explore = {self.explore!r}: expected a share from 0 to 1")
        if isinstance(self.among, bool) or not isinstance(self.among, int) or self.among < 1:
            raise InputError(f"among = {self.among!r}: expected a whole number of at least 1")
        if self.prior is not None and not (
            len(self.prior) == 2 and np.isfinite(self.prior).all() and self.prior[1] > 0
        ):
            raise InputError(f"prior = {self.prior!r}: expected (mean, sd) with a positive sd")
        if self.samples is not None and (
            "count" not in KINDS[self.bank.likelihood] or min(self.samples, default=0) < 1
        ):
            raise InputError(
                f"samples = {self.samples!r}: expected numbers of at least 1, for a bank of counts "
                f"(this one is {self.bank.likelihood!r})"
            )
        object.__setattr__(self, "exclude", tuple(str(item) for item in self.exclude))
        self.where(list(self.exclude))
        if self.by is not None and self.by not in self.bank.items:
            raise check.unknown([self.by], self.bank.items.columns, "column of the bank's items")
        self.costs, self.shares, self.order  # noqa: B018

    @property
    def notes(self) -> tuple[str, ...]:
        """What one should know of the bank before trusting the choice."""
        if "n_answers" in self.bank.items and not self.bank.items["n_answers"].any():
            return ("the questions are not calibrated: none promises more than another, so they come at random",)
        if "prior_led" in self.bank.items and (share := float(self.bank.items["prior_led"].mean())) > 0.5:
            return (f"{share:.0%} of the questions are hardly calibrated: their curves are mostly the prior's",)
        return ()

    def __repr__(self) -> str:
        policy = self.policy if isinstance(self.policy, str) else f"a list of {len(self.policy)} items"
        rules = {f.name: value for f in fields(self.stop) if (value := getattr(self.stop, f.name))}
        lines = [f"AdaptiveTest of {self.bank.n_items:,} items", f"  target: {self.target}", f"  policy: {policy}"]
        lines.append(f"  stop: {rules or 'when the bank is exhausted'}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    # What is worked out once.

    @cached_property
    def layout(self) -> Layout:
        """Tables, facets, prior and target."""
        prior = self.bank.prior if self.prior is None else self.prior
        return lay_out(self.bank, self.target, prior, self.by, self.departures, self.samples)

    @cached_property
    def fingerprint(self) -> str:
        """Name of the bank and target: a state of another test is refused."""
        text = [
            *self.bank.items.index,
            repr(self.target),
            self.bank.likelihood,
            repr(self.prior),
            repr(self.departures),
        ]
        h = hashlib.sha256("\0".join(text).encode())
        for draws_ in (self.bank.a, self.bank.b):
            h.update(np.ascontiguousarray(draws_).tobytes())
        return h.hexdigest()[:16]

    @cached_property
    def costs(self) -> Floats:
        return policies.costs(self.bank, self.cost)

    @cached_property
    def shares(self) -> pd.Series | None:
        return policies.content_shares(self.bank, self.content, self.content_by, self.stop.max_items)

    @cached_property
    def order(self) -> np.ndarray | None:
        """Order of the questions where the policy has one."""
        if not isinstance(self.policy, str):
            return self.where([str(item) for item in self.policy])
        most = self.bank.n_items if self.stop.max_items is None else max(1, self.stop.max_items)
        return policies.spanning_order(self.bank, most) if self.policy == "spanning" else None

    @cached_property
    def fixed(self) -> np.ndarray:
        """The best set before any answer."""
        most = min(self.bank.n_items, 100 if self.stop.max_items is None else self.stop.max_items)
        asked = replace(self, policy="variance", stop=Stop()).next(State(0, self.fingerprint), most)
        return self.where([item if isinstance(item, str) else item[0] for item in asked or []])

    @cached_property
    def _kept(self) -> dict[tuple, Known]:
        return {}

    def where(self, items: Sequence[str]) -> np.ndarray:
        place = positions(self.bank)
        where = np.array([place.get(str(item), -1) for item in items], int)
        if (where < 0).any():
            raise check.unknown(
                np.asarray(items, dtype=object)[where < 0], self.bank.items.index, "item of the bank is called"
            )
        return where

    # The session.

    def start(self, seed: int = 0, exclude: Iterable[str] = ()) -> State:
        """State of a new session: nothing asked.

        Parameters
        ----------
        seed : int
            Of random choices.
        exclude : items that this session may not ask, beside the test's own
        """
        excluded = tuple(sorted({str(item) for item in exclude}))
        self.where(excluded)
        return State(check_seed(seed), self.fingerprint, excluded=excluded)

    def next(self, state: State, n: int | None = None) -> Any:
        """The next question to ask; None where a stop rule holds (see :meth:`reason`).

        Parameters
        ----------
        state : State
        n : int, optional
            A batch of so many questions, chosen together: a list, shorter where there are no more.

        Returns
        -------
        str, or (str, int) with ``samples``; a list of them for a batch
        """
        self._checked(state)
        chosen: list[Any] = []
        for _ in range(1 if n is None else n):
            if rules.stopped(self, state) is not None:
                break
            item = rules.choose(self, state)
            chosen.append(item)
            state = replace(state, waiting=(*state.waiting, item if isinstance(item, str) else item[0]))
        if n is None:
            return chosen[0] if chosen else None
        return chosen

    def next_all(self, states: Sequence[State]) -> list[Any]:
        """The next question of every session, worked out together; None where a stop rule holds."""
        states = [self._checked(state) for state in states]
        new = [s for s in states if self._key(s, True) not in self._kept and not s.waiting]
        if new and self.policy in ("variance", "fisher"):
            found = all_known(self.layout, [s.answers for s in new])
            self._kept.update({self._key(s, True): one for s, one in zip(new, found, strict=True)})
            if self.policy == "variance":
                scores = policies.gains_together(self.layout, found)
                return [self.next(state) for state in states] if scores is None else self._chosen(states, new, scores)
        return [self.next(state) for state in states]

    def _chosen(self, states: Sequence[State], new: list[State], scores: Floats) -> list[Any]:
        """The next questions, with scores (S, J) for the new states."""
        of = {self._key(s, True): score[:, None] for s, score in zip(new, scores, strict=True)}
        chosen = []
        for s in states:
            stopped = rules.stopped(self, s) is not None
            chosen.append(None if stopped else rules.choose(self, s, of.get(self._key(s, True))))
        return chosen

    def give(self, state: State, items: Iterable[Any]) -> State:
        """Note questions as given out: they are not offered again while their answers are on the way."""
        names = [item if isinstance(item, str) else item[0] for item in items]
        for name in names:
            self._refuse_twice(state, name)
        self.where(names)
        return replace(state, waiting=(*state.waiting, *names))

    def answer(self, state: State, item: Any, value: Any, trials: int | None = None) -> State:
        """The state with one answer more; answers may come in any order, to questions that ``next`` did not choose too.

        Parameters
        ----------
        state : State
        item : str, or (str, int) as ``next`` gives it with ``samples``
        value : 0 or 1, number of successes, or share, as the bank has them; None or NaN where there is no answer
            A missing answer says nothing, and the question is not asked again.
        trials : int, optional
            Samples behind a number of successes; the bank's own number of trials where it is not given.

        Raises
        ------
        InputError
            Unknown items, a second answer, answers out of range.
        """
        self._checked(state)
        if not isinstance(item, str) and isinstance(item, tuple):
            item, trials = item[0], item[1] if trials is None else trials
        name = str(item)
        place = int(self.where([name])[0])
        if name in (a.item for a in state.answers):
            raise InputError(f"item {name!r} is answered already in this session")
        default = int(self.bank.items["trials"].iloc[place])
        return state.with_answer(checked_answer(KINDS[self.bank.likelihood], name, value, trials, default))

    def reason(self, state: State) -> str | None:
        """Why the test is over; None while it goes on."""
        self._checked(state)
        return rules.stopped(self, state)

    def result(self, state: State, mass: float = 0.9) -> xr.Dataset:
        """What is known now: the target and the general abilities with equal-tailed intervals.

        Returns
        -------
        Dataset
            mean, sd, lower, upper (of the target); ability_mean, ability_sd, ability_lower, ability_upper by
            dimension; n_asked, n_answered, cost; for :class:`Better` probability_better. Attributes: target, reason.
        """
        return results.result(self, self._checked(state), mass)

    def trace(self, state: State, mass: float = 0.9) -> pd.DataFrame:
        """The target after every answer, in their order: item, answer, mean, sd, lower, upper, cost."""
        return results.trace(self, self._checked(state), mass)

    def candidates(self, state: State, n: int = 10) -> pd.DataFrame:
        """The n questions that are expected to shrink the target's variance most for their cost.

        Columns: item, gain (share of the target's variance that the answer is expected to take away), cost, samples.
        """
        return results.candidates(self, self._checked(state), n)

    def spent(self, state: State) -> float:
        """Cost of the questions asked."""
        where = self.where(state.asked)
        if self.samples is None:
            return float(self.costs[where].sum())
        each = [a.trials or min(self.samples) for a in state.answers] + [min(self.samples)] * len(state.waiting)
        return float(self.costs[where] @ np.array(each, float)) if len(where) else 0.0

    # Inside.

    def _checked(self, state: State) -> State:
        if not isinstance(state, State):
            raise InputError(f"state = {type(state).__name__}: expected the State that test.start gave")
        if state.test != self.fingerprint:
            raise InputError("this state belongs to a test of another bank or target; start a new one with test.start")
        return state

    def _refuse_twice(self, state: State, name: str) -> None:
        if name in state.asked:
            raise InputError(f"item {name!r} was asked already in this session")

    @cached_property
    def prices(self) -> Floats:
        """Cost (J, options) of every question with every number of samples."""
        return self.costs[:, None] * np.array([1.0] if self.samples is None else self.samples, float)

    def _key(self, state: State, waiting: bool) -> tuple:
        return (state.answers, state.waiting if waiting else ())

    def known(self, state: State, waiting: bool = False) -> Known:
        """What the answers say; with ``waiting`` also as if those still to come had come as expected."""
        key = self._key(state, waiting)
        if key not in self._kept:
            while len(self._kept) >= _KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = known(self.layout, state.answers, tuple(self.where(key[1]).tolist()))
        return self._kept[key]

    def allowed(self, state: State) -> np.ndarray:
        """Which questions (J,) may be asked now, content shares aside."""
        return rules.allowed(self, self._checked(state))
