"""Drawing counts: multinomials and draws without replacement, against exact laws, at all sizes."""

import numpy as np
import pytest
from scipy.stats import binom, chisquare, hypergeom, kstest

from s4q.collectors import draws as drawing
from s4q.collectors.draws import Outcomes, _choose_large, choose, cumulative

ONE_AT_A_TIME, AS_COUNTS = True, False


@pytest.mark.parametrize("few_draws", [ONE_AT_A_TIME, AS_COUNTS])
def test_outcomes_have_the_multinomial_law(few_draws: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for rule in ("_few_draws", "_few_balls"):
        monkeypatch.setattr(drawing, rule, lambda *_: few_draws)
    probabilities = np.array([[0.5, 0.0, 0.2, 0.3]])
    table = Outcomes.of(probabilities)
    rng = np.random.default_rng(0)
    draws = table.draw(rng, np.zeros(20_000, dtype=np.int64), np.full(20_000, 6))
    counts = np.zeros((20_000, 4), dtype=np.int64)
    counts[:, table.index[0]] = draws
    assert np.all(counts.sum(axis=1) == 6)
    assert not counts[:, 1].any()
    for outcome, p in ((0, 0.5), (2, 0.2), (3, 0.3)):
        seen = np.bincount(counts[:, outcome], minlength=7)
        assert chisquare(seen, 20_000 * binom.pmf(np.arange(7), 6, p)).pvalue > 1e-3
        assert chisquare(seen, 20_000 * binom.pmf(np.arange(7), 6, p + 0.02)).pvalue < 1e-6
    # Dependence between cells: given 3 of the first, the third is Binomial(3, 0.4).
    given = counts[counts[:, 0] == 3, 2]
    assert chisquare(np.bincount(given, minlength=4), len(given) * binom.pmf(np.arange(4), 3, 0.4)).pvalue > 1e-3


def test_impossible_outcomes_get_nothing_even_at_10_to_17() -> None:
    rng = np.random.default_rng(1)
    probabilities = np.array([[1 / 3, 0.0, 1 / 3, 0.0, 1 / 3, 0.0]])
    table = Outcomes.of(probabilities)
    counts = table.draw(rng, np.zeros(200, dtype=np.int64), np.full(200, 10**17))
    assert table.index[0].tolist() == [0, 2, 4]
    assert np.all(counts.sum(axis=1) == 10**17)
    deviation = (counts - 10**17 / 3) / np.sqrt(10**17 * 2 / 9)
    assert kstest(deviation[:, 0], "norm").pvalue > 1e-3


def p_of_choice(draws: np.ndarray, colour: int, urn: np.ndarray, take: int) -> float:
    total, mine = int(urn.sum()), int(urn[colour])
    support = np.arange(min(mine, take) + 1)
    expected = len(draws) * hypergeom.pmf(support, total, mine, take)
    keep = expected > 5
    seen = np.bincount(draws[:, colour], minlength=len(support))
    rest = (seen[~keep].sum(), expected[~keep].sum())
    cells, wanted = list(seen[keep]), list(expected[keep])
    if rest[1] > 0:
        cells[-1] += rest[0]
        wanted[-1] += rest[1]
    return float(chisquare(cells, np.array(wanted) * sum(cells) / sum(wanted)).pvalue)


@pytest.mark.parametrize("take", [1, 3, 7, 15, 28])
@pytest.mark.parametrize("method", [choose, _choose_large])
@pytest.mark.parametrize("few_draws", [ONE_AT_A_TIME, AS_COUNTS])
def test_choosing_is_hypergeometric(
    take: int, method: object, few_draws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both methods, though the second one is meant for urns beyond numpy's limit."""
    for rule in ("_few_draws", "_few_balls"):
        monkeypatch.setattr(drawing, rule, lambda *_: few_draws)
    urn = np.array([10, 0, 6, 14])
    rng = np.random.default_rng(take)
    few = min(take, 30 - take) if method is _choose_large else take
    draws = np.concatenate(  # many urns at once, and as few as there are colours
        [
            method(rng, np.tile(urn, (n, 1)), np.full(n, few))  # type: ignore[operator]
            for n in (15_000, *[4] * 1_250)
        ]
    )
    assert np.all(draws.sum(axis=1) == few)
    assert np.all((draws >= 0) & (draws <= urn))
    for colour in (0, 2, 3):
        assert p_of_choice(draws, colour, urn, few) > 1e-3
    wrong = urn + np.array([1, 0, 0, -1])
    if few > 2:
        assert p_of_choice(draws, 0, wrong, few) < 1e-4


@pytest.mark.parametrize("total", [10**10, 10**17])
@pytest.mark.parametrize("share", [0.5, 1e-3, 0.9])
def test_choosing_from_huge_urns_has_the_right_mean_and_spread(total: int, share: float) -> None:
    urn = np.array([total // 4, total // 2, total - total // 4 - total // 2])
    take = int(total * share)
    rng = np.random.default_rng(3)
    draws = choose(rng, np.tile(urn, (2000, 1)), np.full(2000, take))
    assert np.all(draws.sum(axis=1) == take)
    variance = take * 0.25 * 0.75 * (1 - take / total)
    assert kstest((draws[:, 0] - take / 4) / np.sqrt(variance), "norm").pvalue > 1e-3
    assert kstest((draws[:, 0] - take / 4) / np.sqrt(take * 0.25 * 0.75 * 2), "norm").pvalue < 1e-4


def test_rows_are_drawn_from_their_own_laws() -> None:
    """Rows without draws, and rows asked for twice, among others."""
    table = Outcomes.of(np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.2, 0.3, 0.5]]))
    rows, n = np.array([2, 0, 1, 2]), np.array([0, 5, 7, 9])
    counts = table.draw(np.random.default_rng(0), rows, n)
    assert counts.sum(axis=1).tolist() == n.tolist()
    for row, drawn in zip(rows, counts, strict=True):
        outcomes = table.index[row][drawn > 0]
        assert set(outcomes) <= {0: {1}, 1: {0, 2}, 2: {0, 1, 2}}[int(row)]


def test_cumulative_sums_end_at_one_with_the_last_possible_outcome() -> None:
    """0.1 added ten times is less than 1; the largest number below 1 must not fall through to an impossible outcome."""
    chances = np.array([0.1] * 10 + [0.0])
    assert np.cumsum(chances)[-1] < 1.0
    assert cumulative(chances)[9:].tolist() == [1.0, 1.0]
    assert cumulative(chances)[:9].tolist() == np.cumsum(chances)[:9].tolist()
    assert cumulative(np.stack([chances[::-1], chances]))[:, -1].tolist() == [1.0, 1.0]
