"""Milliseconds of the next question and of an update, from a bank of the papers' size with 200 posterior draws.

37,682 items, right or wrong; the target is the accuracy on all of them. Sessions of 30 questions;
medians after the first has compiled. A hundred sessions at once: seconds for the next question of all.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd
from _common import clock, print_result

import bayes_irsl as bi

ITEMS, DRAWS, STEPS = 37_682, 200, 30


def bank(seed: int) -> bi.ItemBank:
    """Items known to about a fifth of a logit."""
    rng = np.random.default_rng(seed)
    a = np.exp(0.4 * rng.standard_normal(ITEMS) + 0.2 * rng.standard_normal((DRAWS, ITEMS)))
    b = 1.5 * rng.standard_normal(ITEMS) + 0.3 * rng.standard_normal((DRAWS, ITEMS))
    items = pd.DataFrame({"benchmark": "all"}, index=[f"q{i}" for i in range(ITEMS)])
    return bi.ItemBank(a.astype(np.float32), b.astype(np.float32), items)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=100)
    args = parser.parse_args()
    questions = bank(0)
    rng = np.random.default_rng(1)
    with clock() as made:
        test = bi.AdaptiveTest(questions, stop=bi.Stop(max_items=STEPS))
        state = test.start(seed=0)
        test.next(state)
    nexts, updates = [], []
    for session in range(3):
        state = test.start(seed=session)
        for _ in range(STEPS):
            begin = time.perf_counter()
            item = test.next(state)
            middle = time.perf_counter()
            state = test.answer(state, item, int(rng.integers(2)))
            test.known(state)
            nexts.append(middle - begin)
            updates.append(time.perf_counter() - middle)
    states = [test.start(seed=i) for i in range(args.subjects)]
    together = []
    for _ in range(6):
        begin = time.perf_counter()
        items = test.next_all(states)
        together.append(time.perf_counter() - begin)
        states = [test.answer(s, i, int(rng.integers(2))) for s, i in zip(states, items, strict=True)]
    print(f"tables and compilation {made.wall:.1f} s; facets {len(test.layout.facet.names)}")
    print_result(
        next_item_ms=1000 * float(np.median(nexts)),
        next_item_ms_p95=1000 * float(np.quantile(nexts, 0.95)),
        update_ms=1000 * float(np.median(updates)),
        together_s=float(np.median(together[1:])),
        subjects=args.subjects,
        setup_s=made.wall,
    )


if __name__ == "__main__":
    main()
