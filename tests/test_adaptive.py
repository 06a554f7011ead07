"""Adaptive tests: the choice, the session, its limits and its errors."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bayes_irsl as bi
from bayes_irsl import plots
from bayes_irsl.adaptive.facets import NONE
from bayes_irsl.adaptive.policies import expected_gains, fisher_information
from bayes_irsl.adaptive.state import Answer, State
from bayes_irsl.errors import InputError

ONE_ABILITY = {"departures": NONE}


def rasch_bank(b, **columns):
    items = pd.DataFrame({"benchmark": "quiz", **columns}, index=[f"q{i}" for i in range(len(b))])
    return bi.ItemBank.from_parameters(1.0, np.asarray(b, float), items=items)


def loose_bank(n=40, draws=60, seed=0, **columns):
    rng = np.random.default_rng(seed)
    a = np.exp(rng.normal(0, 0.4, n) + 0.3 * rng.standard_normal((draws, n)))
    b = rng.normal(0, 1.2, n) + 0.4 * rng.standard_normal((draws, n))
    items = pd.DataFrame({"benchmark": "quiz", **columns}, index=[f"q{i}" for i in range(n)])
    return bi.ItemBank(a, b, items)


def play(test, answers, seed=0, steps=None):
    """A session with recorded answers, by item."""
    state = test.start(seed)
    while (item := test.next(state)) is not None and (steps is None or len(state.answers) < steps):
        state = test.answer(state, item, answers[item])
    return state


def recorded(bank, theta, seed=0):
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-bank.a.mean(0) * (theta - bank.b.mean(0))))
    return dict(zip(bank.items.index, (rng.random(bank.n_items) < p).astype(int).tolist(), strict=True))


# --- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [bi.targets.Accuracy(), bi.targets.Ability(), bi.targets.Accuracy(population=True)])
def test_the_expected_gain_is_what_answering_brings(target):
    """Variance before less the mean of the variance after, over both answers; exact for 0/1 answers."""
    test = bi.AdaptiveTest(loose_bank(), target, **ONE_ABILITY)
    state = play(test, recorded(test.bank, 0.5), steps=4)
    found = test.known(state)
    gain = expected_gains(test.layout, found)[:, 0]
    weight = found.belief.weight[test.layout.facet.of_item]
    p = (test.layout.table.mean * weight).sum(1)
    for j in np.flatnonzero(test.allowed(state))[:12]:
        item = test.bank.items.index[j]
        after = [test.known(test.answer(state, item, y)).sd ** 2 for y in (0, 1)]
        expected = (1 - p[j]) * after[0] + p[j] * after[1]
        assert found.sd**2 - expected == pytest.approx(gain[j], rel=0.02, abs=2e-7)


def test_the_expected_gain_with_departures_is_near_what_answering_brings():
    test = bi.AdaptiveTest(loose_bank(160, seed=3))
    state = play(test, recorded(test.bank, -0.5), steps=8)
    found = test.known(state)
    gain = expected_gains(test.layout, found)[:, 0]
    p = (test.layout.table.mean * found.belief.weight[test.layout.facet.of_item]).sum(1)
    best = np.argsort(-np.where(test.allowed(state), gain, -1))[:8]
    for j in best:
        after = [test.known(test.answer(state, test.bank.items.index[j], y)).sd ** 2 for y in (0, 1)]
        assert found.sd**2 - (1 - p[j]) * after[0] - p[j] * after[1] == pytest.approx(gain[j], rel=0.1)


def test_with_equal_slopes_and_a_settled_ability_the_choice_is_fishers():
    test = bi.AdaptiveTest(rasch_bank(np.linspace(-3, 3, 121)), bi.targets.Ability(), **ONE_ABILITY)
    state = test.start()
    for item, y in recorded(test.bank, 0.8, seed=1).items():
        if int(item[1:]) % 2:
            state = test.answer(state, item, y)
    found, left = test.known(state), test.allowed(state)
    by_gain = np.where(left, expected_gains(test.layout, found)[:, 0], -1).argmax()
    by_fisher = np.where(left, fisher_information(test.layout, found)[:, 0], -1).argmax()
    assert abs(int(by_gain) - int(by_fisher)) <= 4  # a tenth of a logit


def test_fisher_information_has_the_square_of_the_slope():
    """IRSL's code maximises p (1 - p) and prefers questions without any slope."""
    bank = bi.ItemBank.from_parameters([0.5, 1.0, 2.0], [0.0, 0.0, 0.0])
    test = bi.AdaptiveTest(bank, bi.targets.Ability(), policy="fisher", **ONE_ABILITY)
    found = fisher_information(test.layout, test.known(test.start()))[:, 0]
    assert found == pytest.approx([0.0625, 0.25, 1.0], rel=0.01)
    assert test.next(test.start()) == "2"


def test_a_useless_question_is_never_chosen_before_others():
    a = np.array([1e-4, 1.0, 1.0, 1.0, 1e-4])
    bank = bi.ItemBank.from_parameters(a, np.array([0.0, -1.0, 0.0, 1.0, 0.5]))
    test = bi.AdaptiveTest(bank, bi.targets.Ability(), **ONE_ABILITY)
    state = play(test, dict.fromkeys(bank.items.index, 1), steps=3)
    assert {a.item for a in state.answers} == {"1", "2", "3"}
    stopped = bi.AdaptiveTest(bank, bi.targets.Ability(), stop=bi.Stop(min_gain=0.001), **ONE_ABILITY)
    end = play(stopped, dict.fromkeys(bank.items.index, 1))
    assert len(end.answers) == 3
    assert stopped.reason(end).startswith("no gain expected")


def test_questions_that_teach_the_same_are_not_asked_together():
    """A batch takes its own questions into account: not the same facet's twins only."""
    test = bi.AdaptiveTest(loose_bank(200, seed=5))
    batch = test.next(test.start(), 8)
    assert len(set(batch)) == 8
    gain = expected_gains(test.layout, test.known(test.start()))[:, 0]
    greedy = set(test.bank.items.index[np.argsort(-gain)[:8]])
    assert set(batch) != greedy


def test_cat_01_ability_never_rises_after_wrong_answers():
    bank = rasch_bank([2.00, 2.31, 2.61, 2.91, 3.10])
    test = bi.AdaptiveTest(bank, bi.targets.Ability(), policy=list(bank.items.index), **ONE_ABILITY)
    state, means, sds = test.start(), [], []
    while (item := test.next(state)) is not None:
        state = test.answer(state, item, 0)
        found = test.known(state)
        means.append(found.mean)
        sds.append(found.sd)
    assert means == pytest.approx([-0.137, -0.224, -0.283, -0.323, -0.355], abs=1e-3)
    assert (sds[0], sds[-1]) == pytest.approx((0.951, 0.879), abs=2e-3)


def test_cat_03_no_question_twice_and_the_reason_is_recorded():
    bank = rasch_bank(np.linspace(-1, 1, 6))
    test = bi.AdaptiveTest(bank, stop=bi.Stop(max_items=10))
    rng = np.random.default_rng(0)
    for seed in range(20):
        state = test.start(seed)
        while (item := test.next(state)) is not None:
            state = test.answer(state, item, int(rng.integers(2)))
        assert len({a.item for a in state.answers}) == len(state.answers) == 6
        assert test.result(state).attrs["reason"].startswith("bank exhausted")


@pytest.mark.parametrize("shares", [(0.90, 0.05, 0.05), (90, 5, 5)])
def test_cat_06_content_shares_are_kept_in_either_notation(shares):
    topics = np.repeat(["algebra", "law", "history"], 200)
    bank = rasch_bank(np.random.default_rng(0).normal(0, 1, 600), category=topics)
    content = dict(zip(("algebra", "law", "history"), shares, strict=True))
    test = bi.AdaptiveTest(bank, stop=bi.Stop(max_items=80), content=content, policy="fisher", **ONE_ABILITY)
    state = play(test, recorded(bank, 0.3))
    counts = bank.items.loc[[a.item for a in state.answers], "category"].value_counts()
    assert counts["algebra"] == pytest.approx(72, abs=1)
    assert counts["law"] == pytest.approx(4, abs=1)
    assert counts["history"] == pytest.approx(4, abs=1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"algebra": -1.0, "law": 2.0}, "at least 0"),
        ({"algebra": 0.0}, "not all of them 0"),
        ({"physics": 1.0}, "physics"),
        ({"algebra": 0.5, "law": 0.5}, "has only 3"),
    ],
)
def test_cat_06_impossible_shares_are_refused(content, says):
    bank = rasch_bank(np.zeros(103), category=["law"] * 3 + ["algebra"] * 100)
    with pytest.raises(InputError, match=says):
        bi.AdaptiveTest(bank, content=content, stop=bi.Stop(max_items=40))


def test_cat_09_loose_slopes_are_not_over_trusted():
    """True slopes are 1, half the bank's known to +- .5 only: stated sd and error agree, which point slopes fail."""
    rng, n, draws = np.random.default_rng(2), 200, 200
    b = rng.normal(0, 1, n)
    loose = np.arange(n) % 2 == 0
    a = np.exp(np.where(loose, 0.47, 0.02) * rng.standard_normal((draws, n)) - np.where(loose, 0.11, 0.0))
    averaged = bi.ItemBank(a, np.broadcast_to(b, (draws, n)), pd.DataFrame(index=[str(i) for i in range(n)]))
    point = bi.ItemBank.from_parameters(a[0], b)  # an estimate is off by as much as one draw
    error, sd, share = {}, {}, {}
    for name, bank in (("averaged", averaged), ("point", point)):
        test = bi.AdaptiveTest(bank, bi.targets.Ability(), stop=bi.Stop(max_items=20), **ONE_ABILITY)
        off, stated, asked = [], [], []
        for s in range(300 if name == "averaged" else 60):
            one = np.random.default_rng([7, s])
            theta = one.standard_normal()
            y = (one.random(n) < 1 / (1 + np.exp(-(theta - b)))).astype(int)
            state = play(test, dict(zip(bank.items.index, y.tolist(), strict=True)))
            found = test.known(state)
            off.append(found.mean - theta)
            stated.append(found.sd)
            asked += [int(a.item) % 2 == 0 for a in state.answers]
        error[name], sd[name] = np.sqrt(np.mean(np.square(off))), np.sqrt(np.mean(np.square(stated)))
        share[name] = np.mean(asked)
    assert share["point"] > 0.8
    assert share["averaged"] < 0.5
    assert sd["point"] / error["point"] < 0.9
    assert 0.9 < sd["averaged"] / error["averaged"] < 1.1


def test_cat_11_the_calibrations_doubt_is_in_the_sd_and_drives_the_stop():
    rng = np.random.default_rng(4)
    b, draws = rng.normal(0, 1, 120), 100
    loose = bi.ItemBank(
        np.exp(0.5 * rng.standard_normal((draws, 120))),
        b + 0.7 * rng.standard_normal((draws, 120)),
        pd.DataFrame(index=map(str, range(120))),
    )
    plug_in = bi.ItemBank.from_parameters(loose.a.mean(0), loose.b.mean(0))
    asked = {}
    for name, bank in (("loose", loose), ("plug-in", plug_in)):
        test = bi.AdaptiveTest(bank, bi.targets.Ability(), stop=bi.Stop(sd=0.35), **ONE_ABILITY)
        state = play(test, recorded(plug_in, 0.2))
        asked[name] = len(state.answers)
        assert test.known(state).sd <= 0.35
        assert "<= 0.35" in test.reason(state)
    assert asked["loose"] > asked["plug-in"]


def test_cat_11_without_any_calibration_questions_come_at_random_and_it_says_so():
    bank = bi.ItemBank.uncalibrated([f"q{i}" for i in range(30)])
    test = bi.AdaptiveTest(bank, stop=bi.Stop(max_items=10))
    orders = [[a.item for a in play(test, dict.fromkeys(bank.items.index, 1), seed=s).answers] for s in (0, 1)]
    assert orders[0] != orders[1]
    assert any("not calibrated" in note for note in test.notes)
    assert "max_items" in repr(test)
    assert "not calibrated" in repr(test)


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_resumes_bit_for_bit_and_answers_may_come_in_any_order(tmp_path):
    test = bi.AdaptiveTest(loose_bank(80), stop=bi.Stop(max_items=12), explore=0.3)
    answers = recorded(test.bank, 0.4)
    whole = play(test, answers, seed=11)
    half = play(test, answers, seed=11, steps=5)
    path = half.save(tmp_path / "half.json")
    again = bi.AdaptiveTest(loose_bank(80), stop=bi.Stop(max_items=12), explore=0.3)
    state = State.load(path)
    assert state == half
    while (item := again.next(state)) is not None:
        state = again.answer(state, item, answers[item])
    assert state == whole
    backwards = State(whole.seed, whole.test, whole.answers[::-1])
    first, second = test.result(whole), again.result(backwards)
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_missing_and_late_answers():
    test = bi.AdaptiveTest(loose_bank(30), stop=bi.Stop(max_items=6))
    state = test.start()
    first = test.next(state)
    skipped = test.answer(state, first, None)
    assert test.next(skipped) != first
    assert float(test.result(skipped)["sd"]) == float(test.result(state)["sd"])
    assert int(test.result(skipped)["n_asked"]) == 1
    out = test.next(state, 3)
    given_out = test.give(state, out)
    assert not set(test.next(given_out, 3)) & set(out)
    assert test.next(given_out, 9).__len__() == 3  # six in all
    late = test.answer(given_out, out[1], 1)
    assert late.waiting == (out[0], out[2])
    with pytest.raises(InputError, match="asked already"):
        test.give(given_out, [out[0]])


def test_counts_and_their_samples():
    items = pd.DataFrame({"benchmark": "code", "trials": 10}, index=["a", "b", "c", "d"])
    bank = bi.ItemBank.from_parameters(1.0, [-1.0, 0.0, 1.0, 2.0], phi=20.0, items=items, likelihood="beta-binomial")
    test = bi.AdaptiveTest(bank, bi.targets.PassAtK(10), samples=(5, 20), stop=bi.Stop(max_cost=12), **ONE_ABILITY)
    state = test.start()
    while (asked := test.next(state)) is not None:
        n = asked[1]
        assert n in (5, 20)
        state = test.answer(state, asked, n // 2)
    assert test.spent(state) == sum(a.trials for a in state.answers) <= 12
    assert test.reason(state).startswith("max_cost")
    more, fewer = (
        test.known(test.answer(test.start(), "b", n // 2, trials=n)).posterior.covariance[0, 0, 0] for n in (40, 4)
    )
    assert more < fewer


def test_cost_is_weighed_against_gain():
    bank = rasch_bank([0.0, 0.1, 0.2])
    dear = {"q0": 10.0, "q1": 10.0, "q2": 1.0}
    test = bi.AdaptiveTest(bank, bi.targets.Ability(), cost=dear, stop=bi.Stop(max_cost=11), **ONE_ABILITY)
    state = play(test, dict.fromkeys(dear, 1))
    assert state.answers[0].item == "q2"
    assert test.spent(state) == 11
    table = test.candidates(test.start())
    assert table["item"][0] == "q2"
    assert ((table["gain"] > 0) & (table["gain"] < 1)).all()


def test_which_of_two_is_better():
    bank = loose_bank(60)
    test = bi.AdaptiveTest(bank, bi.targets.Better(0.2, 0.02), stop=bi.Stop(probability=0.95))
    state = play(test, recorded(bank, 1.5))
    found = test.result(state)
    assert float(found["probability_better"]) >= 0.95
    assert "probability" in found.attrs["reason"]
    assert len(state.answers) < 60
    assert float(found["mean"]) > 0


def test_the_interval_closes_when_everything_is_answered():
    bank = loose_bank(12)
    test = bi.AdaptiveTest(bank)
    answers = recorded(bank, 0.0)
    found = test.result(play(test, answers))
    truth = np.mean(list(answers.values()))
    assert float(found["mean"]) == pytest.approx(truth, abs=1e-9)
    assert float(found["sd"]) < 1e-4
    assert float(found["lower"]) == pytest.approx(truth, abs=1e-9)


def test_trace_follows_the_answers():
    bank = loose_bank(30)
    test = bi.AdaptiveTest(bank, stop=bi.Stop(max_items=5))
    state = play(test, recorded(bank, 0.0))
    table = test.trace(state)
    assert list(table.index) == list(range(6))
    assert table["sd"].iloc[-1] < table["sd"].iloc[0]
    assert ((table["lower"] <= table["mean"]) & (table["mean"] <= table["upper"])).all()
    ax = plots.adaptive_trace(table, truth=0.5)
    assert "truth" in ax.texts[0].get_text()


@pytest.mark.parametrize("policy", ["random", "spanning", "fixed", "fisher", ["q3", "q1", "q2"]])
def test_other_policies_ask_each_question_once(policy):
    bank = loose_bank(25)
    test = bi.AdaptiveTest(bank, policy=policy, stop=bi.Stop(max_items=9))
    state = play(test, recorded(bank, 0.0))
    names = [a.item for a in state.answers]
    assert len(names) == len(set(names)) == (3 if isinstance(policy, list) else 9)
    if isinstance(policy, list):
        assert names == policy


def test_many_sessions_at_once_choose_as_each_would_alone():
    bank = loose_bank(3100, draws=4)
    test = bi.AdaptiveTest(bank, stop=bi.Stop(max_items=3))
    states = [test.start(s) for s in range(4)]
    for step in range(4):
        together = test.next_all(states)
        fresh = bi.AdaptiveTest(bank, stop=bi.Stop(max_items=3))
        alone = [fresh.next(s) for s in states]
        assert together == alone
        if step == 3:
            assert together == [None] * 4
            break
        states = [
            test.answer(s, item, (i + step) % 2) for i, (s, item) in enumerate(zip(states, together, strict=True))
        ]


def test_departures_are_learned_where_there_are_some():
    """Half the questions of each kind; subjects' abilities for the kinds differ by .8 or not at all."""
    rng = np.random.default_rng(0)
    kind = np.repeat(["one", "other"], 60)
    learned = {}
    for sd in (0.0, 0.8):
        theta = rng.standard_normal((40, 1)) + sd * rng.standard_normal((40, 2))[:, (kind == "other").astype(int)]
        y = rng.random((40, 120)) < 1 / (1 + np.exp(-(theta - rng.normal(0, 1, 120))))
        items = pd.DataFrame({"category": kind}, index=[f"q{i}" for i in range(120)])
        table = pd.DataFrame(y.astype(float), index=[f"s{i}" for i in range(40)], columns=items.index)
        fit = bi.fit(bi.ItemResponse(curve="1pl"), bi.Responses.from_wide(table, items=items), progress=False)
        learned[sd] = bi.departures(fit, by="category", refits=2, progress=False)
    # Scales with their weights: the sd over subjects.
    size = {k: v.category * np.sqrt(np.dot(v.weights, np.square(v.scales))) for k, v in learned.items()}
    assert size[0.0] < 0.3
    assert 0.5 < size[0.8] < 1.3


def test_replay_measures_policies_on_recorded_answers():
    responses, _ = bi.simulate_responses(24, 60, curve="1pl", seed=3)
    found = bi.replay(
        responses, bi.ItemResponse(curve="1pl"), folds=2, at=(5, 60), repeats=2, learn=False, progress=False
    )
    assert dict(found.sizes) == {"policy": 3, "subject": 24, "repeat": 2, "asked": 2}
    table = bi.replay_summary(found).set_index(["policy", "asked"])
    # With all questions asked nothing is left to guess.
    assert np.allclose(table.loc[(slice(None), 60), "rmse"], 0, atol=1e-6)
    assert (table.loc[(slice(None), 5), "coverage"] > 0.6).all()
    with pytest.raises(InputError, match="folds"):
        bi.replay(responses, folds=1)
    ax = plots.replay_curves(bi.replay_summary(found))
    assert "standard errors" in ax.texts[0].get_text()
    with pytest.raises(InputError, match="coverage"):
        plots.replay_curves(bi.replay_summary(found), "bias")


# --- errors -----------------------------------------------------------------------------------------------------------


def test_wrong_answers_are_refused_and_nothing_is_lost():
    test = bi.AdaptiveTest(loose_bank(10))
    state = test.answer(test.start(), "q1", 1)
    for call, says in (
        (lambda: test.answer(state, "q99", 1), "q99"),
        (lambda: test.answer(state, "q1", 0), "answered already"),
        (lambda: test.answer(state, "q2", 0.5), "expected 0 or 1"),
        (lambda: test.answer(state, "q2", "yes"), "expected a number"),
        (lambda: test.answer(state, "q2", 1, trials=3), "trials"),
    ):
        with pytest.raises(InputError, match=says):
            call()
    assert state.answers == (Answer("q1", 1.0),)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policy": "best"}, "policy"),
        ({"target": "accuracy"}, "bi.targets"),
        ({"target": bi.targets.Accuracy("mmlu")}, "mmlu"),
        ({"target": bi.targets.PassAtK(3), "bank": "beta"}, "samples"),
        ({"stop": 10}, "bi.Stop"),
        ({"explore": 2}, "explore"),
        ({"exclude": ["q77"]}, "q77"),
        ({"cost": {"q0": 1.0}}, "no value for item"),
        ({"cost": "price"}, "price"),
        ({"by": "topic"}, "topic"),
        ({"samples": (1, 2)}, "counts"),
        ({"among": 0}, "among"),
        ({"prior": (0, -1)}, "positive sd"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, says):
    bank = loose_bank(10)
    if options.pop("bank", None):
        bank = bi.ItemBank.from_parameters(1.0, np.zeros(3), phi=10.0, likelihood="beta")
    with pytest.raises(InputError, match=says):
        bi.AdaptiveTest(bank, **options).layout  # noqa: B018


def test_empty_choices_end_with_a_reason():
    bank = loose_bank(5)
    every = list(bank.items.index)
    assert "bank exhausted" in bi.AdaptiveTest(bank, exclude=every).reason(bi.AdaptiveTest(bank, exclude=every).start())
    none = bi.AdaptiveTest(bank, stop=bi.Stop(max_items=0))
    assert none.next(none.start()) is None
    assert "max_items = 0" in none.reason(none.start())
    broke = bi.AdaptiveTest(bank, stop=bi.Stop(max_cost=0))
    assert "max_cost" in broke.reason(broke.start())
    single = bi.AdaptiveTest(bank.select(["q2"]))
    end = play(single, {"q2": 1})
    assert single.reason(end).startswith("bank exhausted")
    assert float(single.result(end)["mean"]) == 1.0


def test_states_of_other_tests_and_broken_files_are_refused(tmp_path):
    test = bi.AdaptiveTest(loose_bank(10))
    other = bi.AdaptiveTest(loose_bank(10, seed=1))
    with pytest.raises(InputError, match="another bank"):
        other.next(test.start())
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": "bayes_irsl.adaptive.State 1", "answers": [')
    with pytest.raises(InputError, match="no state"):
        State.load(broken)
    with pytest.raises(InputError, match="there is no file"):
        State.load(tmp_path / "none.json")


@given(st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_text_is_a_state_or_one_clear_error(text):
    with pytest.raises(InputError):
        State.from_json(text)


@given(
    st.lists(
        st.tuples(st.text(min_size=1, max_size=5), st.none() | st.floats(0, 1)), max_size=6, unique_by=lambda t: t[0]
    )
)
@settings(max_examples=40, deadline=None)
def test_states_come_back_from_json_unchanged(pairs):
    state = State(3, "x", tuple(Answer(item, value) for item, value in pairs), ("w",))
    assert State.from_json(state.to_json()) == state


def test_stop_rules_are_checked():
    for wrong in ({"sd": -1}, {"max_items": 2.5}, {"probability": 0.4}, {"min_gain": float("nan")}):
        with pytest.raises(InputError, match="expected"):
            bi.Stop(**wrong)
