"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest

# Workers that share cores wait for each other's threads at every small operation, ten times as long as the work takes:
# each gets a core of its own, before JAX counts the cores.
if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of real data that stands beside the project; tests that need it skip where it is absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the shared data folder is not beside the project")
    return SHARED
