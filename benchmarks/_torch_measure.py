"""2PL fits by torch_measure, here or in another interpreter: ``python _torch_measure.py in.npz out.npz``.

Set BENCH_TORCH_PYTHON to an interpreter that has torch_measure where this one has not; it needs nothing else.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RESULTS = ("theta", "a", "b", "cpu_seconds")


def available() -> bool:
    """Whether torch_measure can be run, here or through BENCH_TORCH_PYTHON."""
    return importlib.util.find_spec("torch_measure") is not None or "BENCH_TORCH_PYTHON" in os.environ


def fit_all(table: np.ndarray, settings: list[dict]) -> list[dict[str, np.ndarray]]:
    """theta, a, b and CPU seconds for each of the settings; ``table`` is subjects x items, NaN where missing."""
    if importlib.util.find_spec("torch_measure") is not None:
        return [fit(table, **setting) for setting in settings]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.npz"), Path(folder, "out.npz")
        np.savez(source, table=table, settings=json.dumps(settings))
        subprocess.run([os.environ["BENCH_TORCH_PYTHON"], __file__, str(source), str(target)], check=True)
        with np.load(target) as found:
            return [{k: found[f"{k}{i}"] for k in RESULTS} for i in range(len(settings))]


def fit(
    table: np.ndarray,
    model: str,
    weight_decay: float = 0.0,
    lr: float = 0.01,
    epochs: int = 1000,
    phi: float = 10.0,
) -> dict[str, np.ndarray]:
    """One fit by method "mle": "TwoPL" (cross-entropy, so shares of right answers too) or "BetaTwoPL"."""
    import torch
    from torch.nn.functional import binary_cross_entropy
    from torch_measure.models import BetaTwoPL, TwoPL

    torch.set_num_threads(1)
    torch.manual_seed(0)
    inside = (table > 0) & (table < 1)  # stays inside when rounded to float32
    answers = torch.tensor(np.where(inside, np.clip(table, 1e-37, 1 - 6e-8), table), dtype=torch.float32)
    options = {
        "method": "mle",
        "verbose": False,
        "weight_decay": weight_decay,
        "lr": lr,
        "max_epochs": epochs,
    }
    begun = time.process_time()
    if model == "TwoPL":
        fitted = TwoPL(*table.shape)
        fitted.fit(answers, loss_fn=binary_cross_entropy, **options)
    else:
        fitted = BetaTwoPL(*table.shape, phi=phi)
        fitted.fit(answers, **options)
    parts = {"theta": fitted.ability, "a": fitted.discrimination, "b": fitted.difficulty}
    arrays = {name: value.detach().numpy().astype(float) for name, value in parts.items()}
    return arrays | {"cpu_seconds": np.array(time.process_time() - begun)}


if __name__ == "__main__":
    with np.load(sys.argv[1]) as given:
        results = fit_all(given["table"], json.loads(str(given["settings"])))
    np.savez(sys.argv[2], **{f"{k}{i}": v for i, one in enumerate(results) for k, v in one.items()})
