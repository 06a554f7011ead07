"""How long pass@k takes: 120 items x 12 subjects x 2,560 values of k, from rates on item curves, after compilation."""

from __future__ import annotations

import argparse
import time

import numpy as np
from _common import print_result

from bayes_irsl.forecasts.rates import Sampled

ITEMS, SUBJECTS, SAMPLES = 120, 12, 2560
REPEATS = 9


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    rng = np.random.default_rng(0)
    rates = [Sampled(rng.beta(0.3, 3.0, (1, ITEMS)), np.zeros(ITEMS, int)) for _ in range(SUBJECTS)]
    k = np.arange(1.0, SAMPLES + 1)
    took = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        found = np.stack([r.passes(0, k) for r in rates])
        took.append(time.perf_counter() - start)
    expected = np.mean([1 - (1 - r.p[0]) ** 100 for r in rates], 1)
    print_result(
        seconds=float(np.median(took)),
        largest_difference=float(np.abs(found[:, 0, 99] - expected).max()),
        values=found.size,
    )


if __name__ == "__main__":
    main()
