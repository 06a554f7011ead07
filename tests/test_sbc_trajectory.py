"""Simulation-based calibration of trajectories: ranks are uniform, and two wrong fits are told from right ones."""

import jax
import pytest

import bayes_irsl as bi
from bayes_irsl.diagnostics.ranks import calibration_check
from bayes_irsl.inference.sbc import simulation_based_calibration
from bayes_irsl.inference.sbc_trajectory import TrajectoryTarget


def check(target, simulations=200, **changes):
    settings = {"draws": 63, "thin": 4, "warmup": 250, "shard": 100, "max_tree_depth": 6} | changes
    with jax.enable_x64(True):
        return calibration_check(simulation_based_calibration(target, simulations=simulations, **settings))


def test_a_small_run_ranks_every_quantity():
    with jax.enable_x64(True):
        found = simulation_based_calibration(
            TrajectoryTarget(n_runs=3, n_checkpoints=2), simulations=10, draws=10, thin=1, warmup=20, max_tree_depth=3
        )
    names = set(found["quantity"].to_numpy().tolist())
    assert {"level[0]", "slope[0]", "pull[0]", "pull[1]", "bend[1]", "sd_own", "log_likelihood"} <= names
    assert found["rank"].shape == (10, 16)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["importance", "nuts"])
@pytest.mark.parametrize(
    "target",
    [
        TrajectoryTarget(n_runs=4, n_checkpoints=4),
        TrajectoryTarget(n_runs=4, n_checkpoints=4, grouped=True),
        TrajectoryTarget(n_runs=4, n_checkpoints=3, n_dimensions=2),
    ],
    ids=["one ability", "groups", "two abilities"],
)
def test_ranks_are_uniform(target, sampler):
    found = check(target, sampler=sampler)
    assert found.verdict == "PASS", found.detail


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [
        TrajectoryTarget(n_runs=4, n_checkpoints=4, forget_runs=True),
        TrajectoryTarget(n_runs=4, n_checkpoints=4, fitted=bi.TrajectoryPriors(sd_own=bi.LogNormal(-1.3, 0.7))),
    ],
    ids=["runs forgotten", "wrong prior"],
)
@pytest.mark.parametrize("sampler", ["importance", "nuts"])
def test_wrong_fits_fail(target, sampler):
    assert check(target, sampler=sampler).verdict == "FAIL"
