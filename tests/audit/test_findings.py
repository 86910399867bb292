"""Scores, policies and verdicts against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.claims import Estimates, Lists
from veil.audit.finding import Family, Finding, Score
from veil.audit.policy import Rule, breaches, parse_policy
from veil.audit.score import oracle_pick, score_descriptors, score_positions, score_words, share
from veil.audit.statistics import clopper_pearson
from veil.audit.verdict import judge
from veil.errors import InputError
from worlds import generator

TRUTH = np.eye(6)[:5]


def estimates(errors: list[float], *, certified: list[bool] | None = None) -> Estimates:
    """Estimates that are off the truth by these errors along the last axis; NaN: undecided."""
    points = TRUTH.copy()
    points[:, 5] += errors
    points[np.isnan(errors)] = np.nan
    claimed = np.zeros(5, dtype=bool) if certified is None else np.array(certified)
    return Estimates(points=points, confidence=np.isfinite(errors) * 0.5, certified=claimed)


def test_shares_count_the_undecided_as_not_recovered() -> None:
    score = score_descriptors(estimates([0.0, 0.05, 0.3, 2.0, np.nan]), TRUTH, TRUTH)
    assert score.exact is not None and score.exact.count == 1 and score.exact.total == 5
    assert {limit: share.count for limit, share in score.within.items()} == {0.02: 1, 0.1: 2, 0.2: 2, 0.4: 3, 0.6: 3}
    assert score.recovered == score.shares["within_0.1"]
    assert score.mean_distance == pytest.approx((0 + 0.05 + 0.3 + 2) / 4)  # of the decided ones
    assert score.median_distance == pytest.approx(0.175)
    assert (score.exact.low, score.exact.high) == clopper_pearson(1, 5, confidence=0.95)
    assert np.isnan(score.errors[4]) and score.false_certificates == 0


def test_identified_is_who_has_no_nearer_original() -> None:
    """Originals on a line: an estimate nearer to another original is not identified; equal originals are one answer."""
    truth = np.array([[0.0], [0.0], [1.0]])
    estimates = Estimates(
        points=np.array([[0.4], [0.6], [np.nan]]), confidence=np.array([0.5, 0.5, 0]), certified=np.zeros(3, bool)
    )
    score = score_descriptors(estimates, truth, truth)
    assert score.identified is not None and score.identified.count == 1
    twins = score_descriptors(estimates, truth, np.array([[0.0], [0.0]]))
    assert twins.identified is not None and twins.identified.count == 2


def test_false_certificates_are_counted() -> None:
    claims = estimates([0.0, 0.05, 0.3, 0.0, np.nan], certified=[True, True, True, False, False])
    assert score_descriptors(claims, TRUTH, TRUTH).false_certificates == 2
    assert score_descriptors(claims, TRUTH, TRUTH, certain_within=0.1).false_certificates == 1


def test_positions_are_scored_in_pixels() -> None:
    truth = np.zeros((4, 2))
    estimates = Estimates(
        points=np.array([[0.6, 0.0], [3.0, 4.0], [0.0, 10.0], [np.nan, np.nan]]),
        confidence=np.array([0.1, 0.1, 0.1, 0.0]),
        certified=np.array([False, True, True, False]),
    )
    score = score_positions(estimates, truth)
    assert {limit: share.count for limit, share in score.within.items()} == {1.0: 1, 5.0: 1, 20.0: 3}
    assert score.recovered == score.shares["within_5px"]
    assert score.median_distance == pytest.approx(5.0) and score.false_certificates == 2


def test_words_are_right_or_wrong() -> None:
    score = score_words(estimates([0.2] * 5), np.array([3, 1, 4, -1, 5]), np.array([3, 1, 2, 2, 2]), TRUTH)
    assert score.identified is not None and score.identified.count == 2
    assert score.recovered == score.identified


def test_the_oracle_picks_the_nearest_candidate() -> None:
    random = np.random.default_rng(0)
    lists = [random.standard_normal((count, 6)) for count in (3, 1, 0, 7, 4)]
    picked = oracle_pick(Lists(candidates=tuple(lists), certified=np.zeros(5, dtype=bool)), TRUTH)
    for row, candidates in enumerate(lists):
        if len(candidates):
            best = min(np.linalg.norm(candidate - TRUTH[row]) for candidate in candidates)
            assert np.linalg.norm(picked.points[row] - TRUTH[row]) == pytest.approx(best)
    assert picked.decided.tolist() == [True, True, False, True, True]


def finding(attack: str, family: Family, recovered: int, *, total: int = 100, **other) -> Finding:
    errors = np.where(np.arange(total) < recovered, 0.05, 0.9)
    within = {limit: share(int((errors < limit).sum()), total) for limit in (0.02, 0.1, 0.4, 0.6)}
    score = Score(
        unit="descriptor",
        recovered=within[0.1],
        exact=share(0, total),
        within=within,
        mean_distance=1.0,
        median_distance=1.0,
        identified=share(recovered, total),
        false_certificates=0,
        errors=errors,
    )
    return Finding(
        attack=attack,
        family=family,
        assumes="nothing but the release",
        features=total,
        certified=share(0, total),
        score=other.get("score", score),
        skipped=other.get("skipped", ""),
    )


FOUND = [
    finding("lattice", "structural", 0),
    finding("vertex", "structural", 7),
    finding("nearest", "distribution", 20),
    finding("repeat", "repeat", 0, skipped="no other release was given"),
]


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("structural>5%", True),
        # 7 of 100 may be up to 13.89 %, 0 of 100 up to 3.62 %.
        ("structural>7%", True),
        ("structural>13.8%", True),
        ("structural>13.9%", False),
        ("lattice>3.6%", True),
        ("lattice>3.7%", False),
        ("structural>=7%", True),
        ("structural > 0.05", True),
        ("lattice>0", False),
        ("vertex.within_0.4>6.9%", True),
        ("nearest.exact>0", False),
        ("distribution.identified>19%", True),
        ("structural.certified>0", False),
        ("epsilon.image>100", False),
        ("epsilon.image>99", True),
        ("epsilon>99", True),
        ("epsilon.feature>10", False),
        # Nothing that ran can judge these, which must not pass for kept.
        ("repeat>5%", True),
        ("positions.within_5px>5%", True),
        ("vertex.within_5px>5%", True),
        ("lattise>5%", True),
        ("epsilon.object>1", True),
    ],
)
def test_rules(rule: str, broken: bool) -> None:
    breached = breaches([Rule.parse(rule)], FOUND, {"feature": 10.0, "image": 100.0})
    assert bool(breached) == broken
    assert all(breached.values())


def test_few_features_do_not_pass_a_rule() -> None:
    """The defect: 1 of 60 passed "> 2 %" while up to 8.94 % may fall. With 1 of 1,000 the same rule is kept."""
    (why,) = breaches([Rule.parse("lattice>2%")], [finding("lattice", "structural", 1, total=60)], {}).values()
    assert why == "lattice: 1.7 % (0.0 to 9.0), so it may be 9.0 %; attack more features than 60 to tell"
    assert not breaches([Rule.parse("lattice>2%")], [finding("lattice", "structural", 1, total=1000)], {})
    (why,) = breaches([Rule.parse("lattice>2%")], [finding("lattice", "structural", 0, total=60)], {}).values()
    assert why.endswith("so it may be 6.0 %; attack 183 features to tell, not 60")


@pytest.mark.parametrize("limit", [0.2, 1, 2, 5, 10, 50])
def test_the_least_features_are_the_least(limit: float) -> None:
    """Defining equation: with nothing recovered of `least_features` a rule is kept, and with one feature fewer it is broken."""
    rule = Rule.parse(f"lattice>{limit}%")
    least = rule.least_features
    assert not rule.breaks(share(0, least))
    assert rule.breaks(share(0, least - 1))


def test_a_rule_that_lies_about_its_share_is_seldom_kept() -> None:
    """Statistics: a release with exactly the limit's share keeps its rule in at most 2.5 % of audits, of whatever size; the
    broken twin, which looks at the share alone, keeps it in about half. 4,000 audits would see 3.5 %."""
    rule, random = Rule.parse("lattice>5%"), generator("rules")
    for total in (60, 400):
        counts = random.binomial(total, 0.05, 4000)
        passes = {count: not rule.breaks(share(count, total)) for count in set(counts.tolist())}
        kept = np.mean([passes[count] for count in counts.tolist()])
        assert kept <= 0.025 + 4 * np.sqrt(0.025 * 0.975 / 4000)
        assert np.mean(counts / total <= 0.05) > 0.4


def test_an_unjudged_rule_says_why() -> None:
    (why,) = breaches([Rule.parse("repeat>5%")], FOUND, {}).values()
    assert why == "not judged (repeat: no other release was given)"
    (why,) = breaches([Rule.parse("epsilon.image>5")], FOUND, {}).values()
    assert why == "the release has no epsilon at all"


@pytest.mark.parametrize(
    "rule",
    [
        *("", "structural", "structural>", "structural<5%", "structural>x", "structural>500%", "structural>1.5", "a.b.c>1%"),
        *("structural>nan", "structural>-1%", "lattice.precise>1%", "epsilon.year>3", "epsilon>inf", ">5%", "Structural>5%"),
    ],
)
def test_what_is_no_rule_is_refused(rule: str) -> None:
    with pytest.raises(InputError, match=r"rule is NAME|no '"):
        Rule.parse(rule)


def test_a_policy_is_a_text_of_rules() -> None:
    rules = parse_policy("# none\nstructural>5%  # of all\n\n  epsilon.image >= 20\n")
    assert [(rule.name, rule.metric, rule.limit, rule.inclusive) for rule in rules] == [
        ("structural", "recovered", 0.05, False),
        ("epsilon", "image", 20.0, True),
    ]


def test_verdicts() -> None:
    assert judge(FOUND, {}, 1e-6).grade == "broken"  # 7 % from the release alone
    assert "vertex" in judge(FOUND, {}, 1e-6).headline
    mild = [finding("lattice", "structural", 4), finding("nearest", "distribution", 20)]
    assert judge(mild, {}, 1e-6).grade == "leaks" and "nearest" in judge(mild, {}, 1e-6).headline
    least = judge([finding("lattice", "structural", 4)], {"feature": 8.0, "image": math.inf}, 1e-6)
    assert least.grade == "nothing found" and "4.0 %" in least.headline
    assert "epsilon 8 for each feature, infinite for the whole image" in least.sentences[0]
    assert judge([], {}, 1e-6).headline.startswith("no attack could be scored")


def test_no_verdict_says_safe() -> None:
    """Every verdict states a lower bound and none says "safe", from 0 to 100 recovered features."""
    for recovered in range(0, 101, 4):
        verdict = judge([finding("lattice", "structural", recovered)], {}, 1e-6)
        said = " ".join([verdict.grade, verdict.headline, *verdict.sentences]).lower()
        assert not any(word in said for word in ("safe", "secure", "private,", "anonym"))
        assert "lower bound" in said


def test_a_false_certificate_is_reported() -> None:
    score = score_descriptors(estimates([0.5] * 5, certified=[True] * 5), TRUTH, TRUTH)
    said = judge([finding("vertex", "structural", 0, score=score)], {}, 1e-6)
    assert any("5 recoveries that an attack had certified were wrong" in sentence for sentence in said.sentences)


def test_records_are_json_of_shares() -> None:
    record = FOUND[1].as_json()
    assert (record["attack"], record["within_0.1"], record["exact"], record["features"]) == ("vertex", 0.07, 0.0, 100)
    assert record["interval"]["within_0.1"] == list(clopper_pearson(7, 100, confidence=0.95))
    assert record["within_px"] is None


def test_an_oracle_decides_no_verdict() -> None:
    """Broken twin: without the mark, what nobody can do would be the headline."""
    oracle = finding("oracle of 100", "distribution", 30)
    real = finding("nearest", "distribution", 8)
    assert "oracle" in judge([oracle, real], {}, 1e-6).headline
    assert "nearest" in judge([replace(oracle, hypothetical=True), real], {}, 1e-6).headline
