"""Simulated suites of DataDecide's shape: 25 data recipes at 9 sizes, 10 benchmarks, 50 questions of each asked.

Every replicate is one of three worlds. "steady": abilities bend in log compute, recipes differ by a level and a slope.
"emerging": four benchmarks stay at chance until a size that differs by recipe. "crossing": recipes change places along
the way (a random walk over sizes with heavy tails), and questions of a topic favour the same recipes. None of them is
the fitted model: p(correct) has noise that no Beta has, recipes favour single questions, accuracy is a threshold with
noise of its own, and the truth is the expected accuracy on 1,000 questions, not the 50 that are asked.

The constants were chosen with the two-step law alone, so that its decision accuracy is near what Item Response Scaling
Laws report of it (means over benchmarks: accuracy .58, .63, .76 and p(correct) .63, .74, .77 from models up to 20M,
150M and 750M), before any trajectory was fitted, and are frozen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtri

SIZES = np.array([4, 20, 60, 90, 150, 300, 530, 750, 1000]) * 1e6
TOKENS_PER_PARAM = 100.0
# Checkpoints kept of every run, as shares of its tokens.
SHARES = np.array([0.25, 0.4, 0.55, 0.7, 0.85, 1.0])
RECIPES, TRAINING, ASKED, QUESTIONS = 25, 5, 50, 1000
WORLDS = ("steady", "emerging", "crossing")


@dataclass(frozen=True)
class Benchmark:
    """Chance level, ability at the target, ability per decade, spreads of questions, and family of knowledge."""

    name: str
    chance: float
    level: float
    slope: float
    sd_difficulty: float
    sd_log_a: float
    kind: int


BENCHMARKS = (
    Benchmark("arc_challenge", 0.25, -0.7, 0.22, 0.55, 0.5, 0),
    Benchmark("arc_easy", 0.25, 0.4, 0.38, 0.7, 0.4, 0),
    Benchmark("boolq", 0.5, 0.3, 0.06, 0.19, 0.14, 2),
    Benchmark("csqa", 0.2, -0.3, 0.3, 0.6, 0.4, 0),
    Benchmark("hellaswag", 0.25, -0.2, 0.2, 0.29, 0.3, 1),
    Benchmark("mmlu", 0.25, -0.8, 0.12, 0.4, 0.4, 0),
    Benchmark("openbookqa", 0.25, -0.6, 0.16, 0.5, 0.4, 0),
    Benchmark("piqa", 0.5, 0.7, 0.18, 0.5, 0.4, 1),
    Benchmark("socialiqa", 1 / 3, -0.2, 0.14, 0.4, 0.3, 1),
    Benchmark("winogrande", 0.5, 0.1, 0.1, 0.3, 0.3, 1),
)
EMERGING = ("mmlu", "arc_challenge", "csqa", "openbookqa")

# Recipes, in decades of compute: their level, its change per decade, a run's own noise, a checkpoint's.
SD_RECIPE, SD_RATE, SD_RUN, SD_CHECKPOINT = 0.5, 0.09, 0.12, 0.1
# Recipes on single questions, and noise of a single answer (logits of p).
SD_FAVOUR, SD_ANSWER = 0.2, 0.15
# Spread of the strength of the best wrong answer, and width of the threshold (logits).
SD_RIVAL, WIDTH = 0.8, 0.25
# What the loss knows of a recipe beyond its ability, and noise of a loss (decades).
SD_LOSS, SD_LOSS_NOISE = 0.2, 0.06


@dataclass(frozen=True)
class Suite:
    """What one replicate shows of one benchmark.

    Attributes
    ----------
    p, right : float, int (25, 9, 6, 50), probability of the right answer and whether it was chosen, by recipe, size,
        checkpoint and question.
    loss : float (25, 9, 6), mean loss of the right answers.
    truth : float (25,), expected accuracy of the final 1B checkpoints on all questions.
    """

    benchmark: Benchmark
    p: np.ndarray
    right: np.ndarray
    loss: np.ndarray
    truth: np.ndarray


def compute() -> np.ndarray:
    """FLOP (9, 6) of every checkpoint."""
    return 6 * TOKENS_PER_PARAM * SIZES[:, None] ** 2 * SHARES


def simulate(replicate: int) -> tuple[str, list[Suite]]:
    """The world and the ten benchmarks of one replicate."""
    rng = np.random.default_rng([20_261_130, replicate])
    world = WORLDS[replicate % len(WORLDS)]
    general, kinds = rng.standard_normal(RECIPES), rng.standard_normal((3, RECIPES))
    return world, [_suite(b, world, general, kinds[b.kind], rng) for b in BENCHMARKS]


def _suite(b: Benchmark, world: str, general: np.ndarray, kind: np.ndarray, rng: np.random.Generator) -> Suite:
    normal = rng.standard_normal
    x = np.log10(compute() / compute()[-1, -1])
    quality = SD_RECIPE * (0.6 * general + 0.6 * kind + 0.53 * normal(RECIPES))
    rate = SD_RATE * normal(RECIPES)
    ahead = quality[:, None, None] + rate[:, None, None] * x
    if world == "crossing":
        steps = 0.12 * rng.standard_t(3, (RECIPES, len(SIZES))) * np.sqrt(np.diff(x[:, -1], prepend=x[0, -1] - 0.5))
        ahead = ahead + (steps.cumsum(1) - steps.cumsum(1).mean(1, keepdims=True))[..., None]
    run = SD_RUN * normal((RECIPES, len(SIZES), 1))
    wobble = SD_CHECKPOINT * normal((RECIPES, len(SIZES), len(SHARES))) - 0.15 * (1 - SHARES)
    place = x + ahead + run + wobble
    bent = -np.expm1(-0.12 * place) / 0.12
    if world == "emerging" and b.name in EMERGING:
        start = -2.0 + 0.3 * normal((RECIPES, 1, 1))
        bent = 1.6 * (np.logaddexp(0, 3 * (place - start)) / 3 + start)
    chance = np.log(b.chance / (1 - b.chance))
    ability = chance + np.logaddexp(0, 4 * (b.level + b.slope * bent - chance)) / 4

    difficulty, a = b.sd_difficulty * normal(QUESTIONS), np.exp(b.sd_log_a * normal(QUESTIONS))
    favour = SD_FAVOUR * normal((RECIPES, QUESTIONS))
    if world == "crossing":
        topic = rng.integers(0, 40, QUESTIONS)
        favour = 0.7 * favour + 0.7 * SD_FAVOUR * normal((RECIPES, 40))[:, topic]
    rival = SD_RIVAL * normal(QUESTIONS)

    def logits(theta: np.ndarray, questions: slice) -> np.ndarray:
        favoured = favour[(slice(None), *[None] * (theta.ndim - 1), questions)]
        return a[questions] * (theta[..., None] - difficulty[questions]) + favoured

    # At chance level so many answers are right by chance.
    threshold = chance + ndtri(1 - b.chance) * np.hypot(SD_RIVAL, b.sd_difficulty)
    asked = logits(ability, slice(ASKED))
    asked = asked + SD_ANSWER * normal(asked.shape)
    right = rng.uniform(size=asked.shape) < expit((asked - threshold - rival[:ASKED]) / WIDTH)
    final = logits(ability[:, -1, -1], slice(None))
    truth = expit((final - threshold - rival) / WIDTH).mean(1)
    known = place + SD_LOSS * normal((RECIPES, 1, 1)) + SD_LOSS_NOISE * normal(place.shape)
    loss = 0.55 + 0.5 * 10.0 ** (-0.11 * known)
    return Suite(b, expit(asked), right.astype(int), loss, truth)
