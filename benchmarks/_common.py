"""What the benchmarks share: a CPU clock, peak memory, crossed standard errors, the closing RESULT line."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def shared_data(*parts: str) -> Path:
    """A file or folder of the real data that stands beside the project."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        sys.exit(f"this benchmark needs {'/'.join(('../shared/data', *parts))}, which is not beside the project")
    return path


@dataclass
class Clock:
    """Seconds inside the block: CPU (all threads of this process, and children that ended) and wall."""

    cpu: float = 0.0
    wall: float = 0.0


@contextmanager
def clock() -> Iterator[Clock]:
    """``with clock() as spent: ...`` then ``spent.cpu`` and ``spent.wall``."""
    spent = Clock()
    cpu, wall = _cpu_seconds(), time.perf_counter()
    try:
        yield spent
    finally:
        spent.cpu, spent.wall = _cpu_seconds() - cpu, time.perf_counter() - wall


def _cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak_gb() -> float:
    """Largest resident memory of this process so far, in GB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def print_result(**values: float | int | str | None) -> None:
    """The last line of every benchmark: RESULT {json}; numbers to four digits, None where not measured."""
    rounded = {k: float(f"{v:.4g}") if isinstance(v, (float, np.floating)) else v for k, v in values.items()}
    print("RESULT " + json.dumps(rounded, allow_nan=False, default=int), flush=True)
