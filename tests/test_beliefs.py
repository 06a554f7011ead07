"""Expectation propagation against integrals on dense grids."""

import jax
import numpy as np
import pytest
from scipy.special import expit, log_expit, logsumexp

from bayes_irsl.adaptive import beliefs
from bayes_irsl.adaptive.beliefs import Prior

NODES = np.linspace(-8, 8, 161)


def rasch(b: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log likelihood (G,) of answers to questions of difficulty b."""
    eta = NODES[:, None] - b
    return np.where(y, log_expit(eta), log_expit(-eta)).sum(1)


def prior(covariance: np.ndarray, mean: float = 0.0) -> Prior:
    n = len(covariance)
    return Prior(np.zeros(1), np.full((1, n), mean), covariance[None])


def found(p: Prior, likelihood: np.ndarray) -> beliefs.Posterior:
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, beliefs.posterior(p, NODES, likelihood))


def test_one_ability_is_exact() -> None:
    likelihood = rasch(np.array([-1.0, 0.5, 2.0]), np.array([1, 1, 0]))
    got = found(prior(np.eye(1)), likelihood[None])
    dense = np.linspace(-10, 10, 20001)
    eta = dense[:, None] - np.array([-1.0, 0.5, 2.0])
    log_p = np.where([1, 1, 0], log_expit(eta), log_expit(-eta)).sum(1) - dense**2 / 2
    p = np.exp(log_p - logsumexp(log_p))
    mean = p @ dense
    sd = np.sqrt(p @ (dense - mean) ** 2)
    evidence = logsumexp(log_p) + np.log(dense[1] - dense[0]) - 0.5 * np.log(2 * np.pi)
    assert got.mean[0, 0] == pytest.approx(mean, abs=1e-4)
    assert np.sqrt(got.covariance[0, 0, 0]) == pytest.approx(sd, abs=1e-4)
    assert got.evidence[0] == pytest.approx(evidence, abs=1e-4)
    assert got.weight[0, 0] @ got.at[0, 0] == pytest.approx(mean, abs=1e-4)


def test_narrow_likelihoods_between_nodes_are_seen() -> None:
    # sd .02 is a fifth of the spacing of the nodes.
    likelihood = -0.5 * ((NODES - 0.537) / 0.02) ** 2
    got = found(prior(np.eye(1)), likelihood[None])
    precision = 1 + 1 / 0.02**2
    assert got.mean[0, 0] == pytest.approx(0.537 / 0.02**2 / precision, abs=1e-4)
    assert got.covariance[0, 0, 0] == pytest.approx(1 / precision, rel=0.02)


def test_two_correlated_abilities_against_a_dense_grid() -> None:
    covariance = np.array([[1.0, 0.7], [0.7, 1.2]])
    first = rasch(np.array([0.0, 1.0, -1.0, 0.3]), np.array([1, 1, 1, 0]))
    second = rasch(np.array([0.5, 0.5]), np.array([0, 0]))
    got = found(prior(covariance), np.stack([first, second]))
    x, y = np.meshgrid(NODES, NODES, indexing="ij")
    inverse = np.linalg.inv(covariance)
    quadratic = inverse[0, 0] * x**2 + 2 * inverse[0, 1] * x * y + inverse[1, 1] * y**2
    log_p = first[:, None] + second[None] - quadratic / 2
    evidence = logsumexp(log_p) + 2 * np.log(NODES[1] - NODES[0]) - 0.5 * np.log(np.linalg.det(2 * np.pi * covariance))
    p = np.exp(log_p - logsumexp(log_p))
    mean = np.array([(p * x).sum(), (p * y).sum()])
    away = np.stack([x - mean[0], y - mean[1]])
    exact = np.einsum("aij,bij,ij->ab", away, away, p)
    assert np.allclose(got.mean[0], mean, atol=0.01)
    assert np.allclose(got.covariance[0], exact, atol=0.01)
    assert got.evidence[0] == pytest.approx(evidence, abs=0.01)


def test_an_ability_without_answers_follows_the_others() -> None:
    # The second is the first exactly, the third is independent.
    covariance = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
    likelihood = np.stack([rasch(np.array([0.0, 1.0]), np.array([1, 1]))])
    got = found(prior(covariance), likelihood)
    assert got.mean[0, 1] == pytest.approx(got.mean[0, 0], abs=1e-6)
    assert got.covariance[0, 1, 1] == pytest.approx(got.covariance[0, 0, 0], rel=1e-4)
    assert got.mean[0, 2] == pytest.approx(0, abs=1e-9)
    assert got.covariance[0, 2, 2] == pytest.approx(4, rel=1e-9)


def test_priors_are_weighed_by_what_they_make_of_the_answers() -> None:
    likelihood = rasch(np.full(12, 2.0), np.ones(12))
    narrow, wide = np.array([[0.25]]), np.array([[9.0]])
    both = Prior(np.log([0.5, 0.5]), np.zeros((2, 1)), np.stack([narrow, wide]))
    got = found(both, likelihood[None])
    alone = [found(prior(v), likelihood[None]).evidence[0] for v in (narrow, wide)]
    assert np.exp(got.log_weight)[1] == pytest.approx(expit(alone[1] - alone[0]), abs=1e-6)
    assert np.exp(got.log_weight)[1] > 0.9


def test_several_subjects_at_once_are_each_as_alone() -> None:
    p = prior(np.array([[1.0, 0.5], [0.5, 1.0]]))
    every = np.stack(
        [
            np.stack([rasch(np.array([0.0]), np.array([1])), np.zeros(len(NODES))]),
            np.stack([rasch(np.array([1.0]), np.array([0])), rasch(np.array([0.0, 2.0]), np.array([1, 0]))]),
        ]
    )
    with jax.enable_x64(True):
        got = jax.tree.map(np.asarray, beliefs.posteriors(p, NODES, every))
    for i in range(2):
        alone = found(p, every[i])
        assert np.allclose(got.mean[i], alone.mean, atol=1e-6)
        assert np.allclose(got.covariance[i], alone.covariance, atol=1e-6)


def test_weights_on_the_grid_keep_what_is_linear() -> None:
    rng = np.random.default_rng(0)
    at = rng.uniform(-3, 3, (2, 3, beliefs.FINE))
    weight = rng.dirichlet(np.ones(beliefs.FINE), (2, 3))
    with jax.enable_x64(True):
        moved = np.asarray(beliefs.on_grid(NODES, at, weight, len(NODES)))
    assert np.allclose(moved.sum(-1), 1)
    assert np.allclose(moved @ NODES, (weight * at).sum(-1))
