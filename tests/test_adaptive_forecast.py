"""Choosing checkpoints and questions for a forecast."""

import numpy as np
import pandas as pd
import pytest

import bayes_irsl as bi
from bayes_irsl.errors import InputError


@pytest.fixture(scope="module")
def setting():
    rng = np.random.default_rng(0)
    n = 60
    items = pd.DataFrame({"benchmark": "quiz", "curve": "2pl"}, index=[f"q{i}" for i in range(n)])
    bank = bi.ItemBank.from_parameters(
        np.exp(0.2 * rng.standard_normal(n)), rng.normal(0.3, 1.2, n), items=items, scale_id="made up"
    )
    compute = np.logspace(20, 23, 9)
    theta = -0.3 + 0.6 * (np.log10(compute) - 21.5)
    y = (rng.random((9, n)) < 1 / (1 + np.exp(-(theta[:, None] - bank.b[0])))).astype(float)
    table = pd.DataFrame({"compute": compute, "price": 10.0 ** np.arange(9)}, index=[f"m{i}" for i in range(9)])
    wide = pd.DataFrame(y[:5], index=table.index[:5], columns=items.index)
    seen = bi.Responses.from_wide(wide, subjects=table.iloc[:5], items=items[["benchmark"]])
    trend = bi.fit(bi.AbilityTrajectory(), seen, anchor=bank, draws=300, progress=False)
    return bank, trend, table.iloc[5:], y[5:]


def plan_of(setting, **options):
    bank, trend, table, _ = setting
    return bi.AdaptiveForecast(bank, trend, table, {"compute": 1e24}, **options)


def played(plan, y, n):
    state = plan.start(0)
    for _ in range(n):
        if (pair := plan.next(state)) is None:
            break
        state = plan.answer(state, pair, y[plan.names.index(pair[0]), plan.bank.items.index.get_loc(pair[1])])
    return state


def test_the_forecast_before_any_answer_is_the_trajectorys(setting):
    trend = setting[1]
    plan = plan_of(setting)
    now, of_trend = plan.result(plan.start()), bi.forecast(trend, compute=1e24)
    assert float(now["mean"]) == pytest.approx(of_trend["accuracy_mean"].item(), abs=0.03)
    width = (of_trend["accuracy_upper"] - of_trend["accuracy_lower"]).item()
    assert float(now["upper"] - now["lower"]) == pytest.approx(width, rel=0.3)


def test_answers_of_checkpoints_shrink_the_forecast_and_no_pair_comes_twice(setting):
    plan = plan_of(setting, stop=bi.Stop(max_items=30))
    state = played(plan, setting[3], 40)
    pairs = [a.item for a in state.answers]
    assert len(pairs) == len(set(pairs)) == 30
    assert plan.reason(state) == "max_items = 30 reached"
    assert float(plan.result(state)["sd"]) < 0.9 * float(plan.result(plan.start())["sd"])
    assert int(plan.result(state)["by_checkpoint"].sum()) == 30


def test_the_largest_checkpoint_tells_most_and_is_asked_while_it_costs_no_more(setting):
    alike = played(plan_of(setting), setting[3], 12)
    dear = played(plan_of(setting, cost="price"), setting[3], 12)

    def asked(state):
        return pd.Series([a.item.split(" / ")[0] for a in state.answers]).value_counts()

    assert asked(alike).idxmax() == "m8"
    assert "m8" not in asked(dear)


def test_the_order_of_answers_does_not_matter_and_states_are_saved(setting, tmp_path):
    plan = plan_of(setting)
    state = played(plan, setting[3], 6)
    kept = type(state).load(state.save(tmp_path / "s.json"))
    back = type(state)(state.seed, state.test, kept.answers[::-1])
    assert float(plan.result(back)["mean"]) == float(plan.result(state)["mean"])
    batch = plan.next(state, 5)
    assert len(set(batch)) == 5


def test_what_cannot_be_used_is_refused(setting):
    for options, says in (
        ({"policy": "best"}, "policy"),
        ({"cost": "fee"}, "fee"),
        ({"cost": {"m5": -1}}, "m5"),
        ({"stop": bi.Stop(width=0.1)}, "max_cost"),
    ):
        with pytest.raises(InputError, match=says):
            plan_of(setting, **options)
    bank, trend, table, _ = setting
    with pytest.raises(InputError, match="compute"):
        bi.AdaptiveForecast(bank, trend, table, {"pool": "x"})
    with pytest.raises(InputError, match="no column 'params'"):
        bi.AdaptiveForecast(bank, trend, table, {"params": 1e9, "tokens": 1e11})
    plan = plan_of(setting)
    with pytest.raises(InputError, match="no state of this plan"):
        plan.next(type(plan.start())(0, "another"))
    state = plan.answer(plan.start(), ("m5", "q1"), 1)
    for pair, says in ((("m5", "q1"), "already"), (("m1", "q1"), "m1"), (("m5", "z"), "z")):
        with pytest.raises(InputError, match=says):
            plan.answer(state, pair, 1)
