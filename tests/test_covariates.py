"""Where subjects stand, and where forecasts are asked for: coordinates by hand, and clear refusals."""

import numpy as np
import pandas as pd
import pytest

import bayes_irsl as bi
from bayes_irsl.covariates import layout
from bayes_irsl.errors import InputError
from bayes_irsl.forecasts.places import places

SPEC = bi.AbilityTrajectory()


def subjects(**columns):
    table = pd.DataFrame(
        {"params": [1e8, 1e8, 1e9, 1e10], "tokens": [1e10, 1e11, 1e11, 1e12], "run": ["a", "a", "b", "c"]} | columns
    )
    table.index = pd.Index(list("wxyz"), name="subject")
    return table


def test_parameters_and_tokens_where_both_are_known():
    found = layout(SPEC, subjects())
    assert found.covariates == ("params", "tokens")
    np.testing.assert_allclose(found.reference, [8.75, 11.0])
    np.testing.assert_allclose(found.coordinates[:, 0], [-0.75, -0.75, 0.25, 1.25])
    assert found.run.tolist() == [0, 0, 1, 2]
    assert found.along_run
    assert not found.grouped


def test_compute_alone_where_tokens_are_missing_or_all_the_same():
    compute = [1e20, 1e21, 1e22, 1e23]
    for table in (subjects(compute=compute).drop(columns="tokens"), subjects(compute=compute, tokens=[1e11] * 4)):
        found = layout(SPEC, table)
        assert found.covariates == ("compute",)
        np.testing.assert_allclose(found.coordinates[:, 0], [-1.5, -0.5, 0.5, 1.5])


def test_a_subject_without_compute_is_left_to_the_items():
    found = layout(SPEC, subjects(params=[1e8, np.nan, 1e9, 1e10]))
    assert found.used.tolist() == [0, 2, 3]
    assert not found.along_run


def test_runs_and_pools_without_a_label_stand_alone():
    found = layout(
        bi.AbilityTrajectory(pool="family"), subjects(family=["p", None, "p", "q"], run=["a", None, None, "a"])
    )
    assert found.groups == ("p", "pool of x", "q")
    assert found.runs == ("a", "run of x", "run of y")


@pytest.mark.parametrize(
    ("spec", "table", "says"),
    [
        (SPEC, subjects().drop(columns=["params", "tokens"]), "no column 'compute'"),
        (SPEC, subjects(params=[np.nan, np.nan, 1e9, 1e10]), "2 of 4 subjects have compute: a trajectory needs three"),
        (SPEC, subjects(params=[1e9] * 4, tokens=[1e11] * 4), "the slope would be the prior's alone"),
        (bi.AbilityTrajectory(pool="family"), subjects(), "pool='family': no such subject column"),
        (bi.AbilityTrajectory(covariates=("params", "tokens")), subjects().drop(columns="tokens"), "'tokens'"),
    ],
)
def test_tables_that_carry_no_trajectory(spec, table, says):
    with pytest.raises(InputError, match=says):
        layout(spec, table)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"items": "2pl"}, "items"),
        ({"pool": 3}, "pool = 3"),
        ({"covariates": "params"}, "covariates"),
        ({"residual": "ar1"}, "residual = 'ar1'"),
        ({"priors": bi.ItemPriors()}, "TrajectoryPriors"),
    ],
)
def test_specs_say_what_they_expect(arguments, says):
    with pytest.raises(InputError, match=says):
        bi.AbilityTrajectory(**arguments)


def test_spec_survives_json():
    spec = bi.AbilityTrajectory(
        bi.ItemResponse(curve="1pl"), pool="family", covariates=["params", "tokens"],
        priors=bi.TrajectoryPriors(bend=0.0, slope=bi.LogNormal(0.0, 0.3)),
    )  # fmt: skip
    assert bi.AbilityTrajectory.from_dict(spec.to_dict()) == spec


def test_priors_that_cannot_be():
    with pytest.raises(InputError, match="prior slope = 0: expected a positive number"):
        bi.TrajectoryPriors(slope=0)
    with pytest.raises(InputError, match="prior bend = Normal"):
        bi.TrajectoryPriors(bend=bi.Normal(0, 1))
    with pytest.raises(InputError, match=r"prior sd_run = -1: expected a number >= 0"):
        bi.TrajectoryPriors(sd_run=-1)
    assert bi.TrajectoryPriors(sd_run=0.0).sd_run == 0.0


def test_places_by_hand():
    found = places(layout(SPEC, subjects()), params=[1e9, 1e11], tokens=1e12, run=["b", None])
    np.testing.assert_allclose(found.coordinates, [[0.25, 1.0], [2.25, 1.0]])
    np.testing.assert_allclose(found.covariates["compute"], [6e21, 6e23])
    np.testing.assert_allclose(found.beyond, [0, 1.0], atol=1e-12)
    assert found.run.tolist() == [1, -2]


def test_compute_is_split_by_the_stated_ratio():
    found = places(layout(SPEC, subjects()), compute=6e20 * 20, tokens_per_param=20)
    np.testing.assert_allclose(found.covariates["params"], 1e10)
    np.testing.assert_allclose(found.covariates["tokens"], 2e11)


def test_the_same_place_in_two_groups_is_two_runs():
    place = layout(bi.AbilityTrajectory(pool="family"), subjects(family=list("ppqq")))
    found = places(place, params=[1e11, 1e12], tokens=1e12, pool=["p", None])
    points, subject = found.points(place, 2)
    assert points.size == 8
    assert len(set(points.run[:4].tolist())) == 4
    assert points.group[:4].tolist() == [0, 0, -2, -2]
    assert subject.tolist() == [4, 5, 6, 7] * 2


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"compute": 1e22}, "runs over parameters and tokens, got .'compute'.: pass params= and tokens="),
        ({}, "got neither"),
        ({"params": 1e9, "tokens": 0}, "tokens = 0.0: expected one or more finite positive numbers"),
        ({"params": 1e9, "tokens": [1e11, np.nan]}, "tokens = nan"),
        ({"params": 1e9, "tokens": 1e11, "pool": "llama"}, "this fit has no groups"),
        ({"params": 1e9, "tokens": 1e11, "run": "d"}, r"run 'd' is not in the fit; there are \['a', 'b', 'c'\]"),
        ({"params": [1e9, 1e10], "tokens": 1e11, "run": ["a", "b", "c"]}, "3 runs for 2 places"),
    ],
)
def test_places_that_the_fit_cannot_speak_of(asked, says):
    with pytest.raises(InputError, match=says):
        places(layout(SPEC, subjects()), **asked)
