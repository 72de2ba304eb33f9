"""Presets: the formulas against numbers worked out apart, and every override."""

import ast
from dataclasses import replace
from itertools import product
from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest
from literal_constants import LiteralConstants
from literal_s4q import in_blocks

import s4q
from s4q.core.messages import Spec
from s4q.learners.explanation import explain, first_phase, guarantee, visits_until_useful
from s4q.learners.presets import Constants, constants

NOTHING = np.zeros((1, 10, 10))


def literal_spec(n_blocks: int = 1, block_dim: int = 10, well_specified: bool = False) -> Spec:
    """The paper's own scale: unit ball and unit values at every level."""
    return Spec(
        horizon=3,
        n_actions=2,
        n_blocks=n_blocks,
        block_dim=block_dim,
        reward_min=0.0,
        reward_max=1.0,
        value_bound=(1.0, 1.0, 1.0),
        radius=(1.0, 1.0, 1.0),
        block_radius=(1.0, 1.0, 1.0),
        stationary=False,
        well_specified=well_specified,
    )


def test_paper_numbers_for_ten_features_and_three_levels() -> None:
    """d = 10, H = 3, delta = 0.05, K = 10^6: ridge 6533 (50 phases), trigger 2966, width 522 (phase 2)."""
    c = constants(literal_spec(), "paper", max_episodes=10**6)
    assert c.ridge(50, 1)[0] == pytest.approx(6533, abs=1)
    first, slope = c.threshold(1)
    assert first + slope * log(1e6) == pytest.approx(2966, abs=1)
    assert c.width(0, 2, 1, NOTHING, 6533.0)[0] == pytest.approx(522, abs=1)
    assert (c.epochs, c.c_replay, c.bonus_from) == ("doubling", 4.0, "previous")


def test_tight_numbers() -> None:
    """The same at the last level, where targets lie in [0, 1]: ridge 1832, trigger 581, width 204."""
    c = constants(literal_spec(), "tight", max_episodes=10**6)
    assert c.ridge(50, 1)[2] == pytest.approx(1832, abs=1)
    first, slope = c.threshold(1)
    assert first + slope * log(1e6) == pytest.approx(581, abs=1)
    assert c.width(2, 2, 1, NOTHING, 1832.0)[0] == pytest.approx(204, abs=1)
    assert (c.epochs, c.c_replay, c.bonus_from) == ("single", 1.0, "previous")


# (d, H, delta, phase, n), then ridge and trigger of paper and tight, then width of a level before the last with ridge 1
# and 250, of tight also that of the last level: numbers of the script that goes with the paper's constants.
SCRIPT = [
    ((10, 3, 0.05, 50, 10**6), (6533.112890983833, 1831.5425693837915), (3613.2190345156405, 708.0743753123392)),
    ((10, 3, 0.05, 1, 100), (2806.608134197549, 786.8258759856701), (1443.6549561181243, 282.9098018844388)),
    ((4, 7, 0.3, 5, 12345), (4367.055958200724, 1224.2936902811193), (2427.8914523205285, 475.78840557571647)),
]
SCRIPT_WIDTHS = [
    ((477.360948748072, 479.44288021583907), (275.61172894107114, 278.0104766549032), (181.86055600041004,)),
    ((335.79317041891625, 338.7462963634988), (193.88059323544763, 197.27565595716342), (126.5660976515938,)),
    ((272.3762851906187, 276.0087693067763), (157.26923913493198, 161.43609750635207), (103.5391910170063,)),
]


@pytest.mark.parametrize("case", range(3))
def test_numbers_of_the_script(case: int) -> None:
    """To 1e-12, of the library and of the oracle; unit ball and unit values at every level, as the paper has it."""
    (dim, horizon, delta, phase, n), ridges, triggers = SCRIPT[case]
    ones = (1.0,) * horizon
    spec = replace(literal_spec(block_dim=dim), horizon=horizon, value_bound=ones, radius=ones, block_radius=ones)
    for i, preset in enumerate(("paper", "tight")):
        options = {"delta": delta, "max_episodes": n}
        ours, literal = constants(spec, preset, **options), LiteralConstants(spec, preset, **options)  # type: ignore[arg-type]
        for c in (ours, literal):
            np.testing.assert_allclose(c.ridge(phase, 1), ridges[i], rtol=1e-12)
            first, slope = c.threshold(phase, replaying=True)
            assert first + slope * log(n) == pytest.approx(triggers[i], rel=1e-12)
        before, last = SCRIPT_WIDTHS[case][i], SCRIPT_WIDTHS[case][2]
        for level, ridge, width in ((0, 1.0, before[0]), (0, 250.0, before[1]), (horizon - 1, 1.0, last[0])):
            if preset == "paper" and level:
                continue  # the script has no paper width for targets in [0, 1]
            assert ours.width(level, phase, 1, np.zeros((1, dim, dim)), ridge)[0] == pytest.approx(width, rel=1e-12)
            assert literal.width(level, phase, 1, np.zeros((dim, dim)), ridge)[0] == pytest.approx(width, rel=1e-12)


def test_episodes_a_level_of_the_script() -> None:
    for c_replay, sizes in ((1.0, [2, 2, 2, 4, 4, 16, 16, 256]), (4.0, [4, 4, 8, 8, 8, 32, 32, 1024])):
        ours = constants(literal_spec(), "paper", c_replay=c_replay)
        assert [ours.samples_a_level(m) for m in (2, 3, 5, 6, 7, 30, 31, 1000)] == sizes


def random_spec(rng: np.random.Generator, n_blocks: int, block_dim: int, well_specified: bool) -> Spec:
    """Every level with bounds of its own, and a whole parameter longer than a block of it."""
    horizon = int(rng.integers(1, 5))
    small = rng.uniform(0.3, 3.0, size=horizon)
    return Spec(
        horizon=horizon,
        n_actions=2,
        n_blocks=n_blocks,
        block_dim=block_dim,
        reward_min=float(rng.uniform(-1, 0.5)),
        reward_max=float(rng.uniform(0.6, 2)),
        value_bound=tuple(rng.uniform(0.2, 4.0, size=horizon).tolist()),
        radius=tuple((small * rng.uniform(1.1, 2.0, size=horizon)).tolist()),
        block_radius=tuple(small.tolist()),
        stationary=True,
        well_specified=well_specified,
    )


SHAPES = {"dense": (1, 4), "blocks": (3, 2), "one-hot": (5, 1)}
FORMULAS = list(
    product(
        ("paper", "tight", "realisable", "practical"),
        ("single", "doubling"),
        ("own", "previous"),
        (None, 0.3, 1.7, 5.0),
        (None, 300),
    )
)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("well_specified", [True, False])
def test_every_formula_equals_the_oracle(shape: str, well_specified: bool) -> None:
    """Ridge, trigger, balls, width and episodes, over all options, phases and random problems."""
    rng = np.random.default_rng(8)
    (n_blocks, k), checked = SHAPES[shape], 0
    for preset, epochs, bonus_from, c_replay, most in FORMULAS:
        if preset == "practical" and bonus_from == "previous":
            continue
        spec = random_spec(rng, n_blocks, k, well_specified)
        options = {
            "epochs": epochs,
            "bonus_from": bonus_from,
            "max_episodes": most,
            "delta": float(rng.uniform(0.01, 0.5)),
        }
        if c_replay is not None:
            options["c_replay"] = c_replay
            options["memory"] = "policies"  # no other replays
        if preset == "practical" and c_replay is None:
            del options["epochs"]  # for the same reason
        if rng.random() < 0.5 and preset == "realisable":
            options["pool"] = False
        if rng.random() < 0.2:
            options["ridge"] = rng.uniform(0.1, 2, size=spec.horizon)
        if rng.random() < 0.2:
            options["bonus_width"] = rng.uniform(0.1, 2, size=spec.horizon)
        if rng.random() < 0.2:
            options["trigger"] = (float(rng.uniform(0.1, 2)), 0.5)
        ours, literal = constants(spec, preset, **options), LiteralConstants(spec, preset, **options)  # type: ignore[arg-type]
        assert (ours.c_replay, ours.pool) == (literal.c, literal.pool)
        for phase, n_total in ((1, 0), (2, 1), (3, 17), (7, 1000)):
            np.testing.assert_allclose(ours.ridge(phase, n_total), literal.ridge(phase, n_total), rtol=1e-12)
            for replaying in (False, True):
                pair = ours.threshold(phase, replaying=replaying)
                np.testing.assert_allclose(pair, literal.threshold(phase, replaying), rtol=1e-12)
            assert ours.replay_slots(n_total) == literal.slots(n_total)
            assert ours.samples_a_level(n_total) == literal.n_level(n_total)
            for h in range(spec.horizon):
                checked += 1
                assert_same_ball(ours.radius(), h, literal.balls(h))
                x = rng.normal(size=(n_total // 10 + 1, spec.dim)) * (n_total > 0)
                mask = np.kron(np.eye(n_blocks), np.ones((k, k)))
                gram, ridge = (x.T @ x) * mask, float(rng.uniform(0.1, 3))
                if preset == "practical":
                    continue
                width = ours.width(h, phase, n_total, in_blocks(gram, n_blocks), ridge)
                np.testing.assert_allclose(width, literal.width(h, phase, n_total, gram, ridge), rtol=1e-8)
    assert checked > 500


def assert_same_ball(ours: np.ndarray | None, h: int, literal: float | np.ndarray | None) -> None:
    """No ball may be written as None or as infinite ones."""
    if literal is None:
        assert ours is None or np.all(np.isinf(ours[h]))
    else:
        assert ours is not None
        np.testing.assert_array_equal(ours[h], literal)


def test_the_memory_of_a_preset() -> None:
    spec = s4q.problems.chain().spec
    kept = {preset: constants(spec, preset) for preset in ("paper", "tight", "realisable", "practical")}  # type: ignore[arg-type]
    assert [c.memory for c in kept.values()] == ["policies"] * 3 + ["sketch"]
    assert [c.memory_bytes for c in kept.values()] == [None] * 3 + [64 * 2**20]
    assert constants(spec, "tight", memory="sketch").memory_bytes == 64 * 2**20
    assert constants(spec, "practical", memory_bytes=5000).memory_bytes == 5000
    assert constants(spec, "practical", memory="all").memory_bytes is None


def test_a_budget_must_hold_a_step_a_level() -> None:
    """One-hot, two actions: a row of five numbers, a flag, a settled weight and an index, and two states."""
    spec, state = s4q.problems.chain().spec, 2 * 8 + 2 * 8 + 16
    step = 5 * 8 + 1 + 8 + 16 + 2 * state
    assert constants(spec, "practical", memory_bytes=step).memory_bytes == step
    with pytest.raises(
        ValueError, match=r"memory_bytes is the budget .* at least 161; got 160; raise it, leave it out for 64 MiB"
    ):
        constants(spec, "practical", memory_bytes=step - 1)
    with pytest.raises(ValueError, match="at least 1610; got 1609"):
        constants(spec, "practical", memory_bytes=10 * step - 1, pool=False)


@pytest.mark.parametrize("name", ["literal_constants", "literal_s3q", "literal_s4q"])
def test_the_oracles_know_nothing_of_the_library(name: str) -> None:
    tree = ast.parse((Path(__file__).parents[1] / "helpers" / f"{name}.py").read_text())
    imported = {
        module.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for module in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert imported <= {"collections", "dataclasses", "typing", "numpy", "literal_constants", "literal_s3q"}


def test_realisable_numbers() -> None:
    """Enough data in every direction, k_e = 10, s = 1/2, B = 1."""
    c = constants(literal_spec(well_specified=True), "realisable")
    full = np.eye(10)[None] * 1e12
    t = log(8 * 3 * 4 / 0.05)
    expected = 0.5 * sqrt(10 + 2 * sqrt(10 * t) + 2 * t) + 1.0
    assert c.width(2, 2, 10**6, full, 1.0)[0] == pytest.approx(expected, rel=1e-9)
    assert c.width(2, 2, 10**6, NOTHING, 1.0)[0] == pytest.approx(0.5 * sqrt(2 * t) + 1.0, rel=1e-9)
    assert c.threshold(7) == (10.0, 0.0)
    assert c.ridge(9, 10**9).tolist() == [1.0, 1.0, 0.25]  # (s/B)^2; targets of the last level have half the range
    assert (c.epochs, c.c_replay, c.bonus_from) == ("single", 1.0, "own")


def test_radius_per_block() -> None:
    """Of one-hot features the largest target: 1 + v, and 1 at the last level."""
    mdp = s4q.problems.chain()
    c = constants(mdp.spec, "realisable")
    np.testing.assert_allclose(c.radius(), np.repeat([2.0] * 9 + [1.0], 20).reshape(10, 20))
    exact = constants(s4q.problems.low_rank().spec, "realisable")
    np.testing.assert_allclose(exact.radius()[:, 0], s4q.problems.low_rank().spec.radius)
    assert constants(mdp.spec, "paper").radius().shape == (10,)


def test_widths_scale_with_the_units_of_the_problem() -> None:
    """The same problem in cents: every width is a hundred times larger, ridge and trigger stay."""
    cheap = s4q.problems.chain(4, 3)
    dear = s4q.FiniteMDP(
        cheap.transitions, 100 * cheap.rewards, cheap.start, reward_range=(0.0, 100.0), value_bound=100.0
    )
    gram = np.full((8, 1, 1), 5.0)
    for preset in ("paper", "tight", "realisable"):
        a, b = (constants(mdp.spec, preset) for mdp in (cheap, dear))  # type: ignore[arg-type]
        for h in range(3):
            np.testing.assert_allclose(100 * a.width(h, 3, 50, gram, 2.0), b.width(h, 3, 50, gram, 2.0))
        assert a.threshold(3) == b.threshold(3)
        np.testing.assert_array_equal(a.ridge(3, 50), b.ridge(3, 50))


@pytest.mark.parametrize("preset", ["paper", "tight", "realisable"])
def test_ridge_trigger_and_width_never_fall_from_phase_to_phase(preset: str) -> None:
    c = constants(s4q.problems.low_rank().spec, preset)  # type: ignore[arg-type]
    gram = np.zeros(c.spec.gram_shape)
    ridges = [c.ridge(p, 10**p)[0] for p in range(1, 12)]
    widths = [c.width(0, p, 10**p, gram, c.ridge(p, 10**p)[0])[0] for p in range(1, 12)]
    assert ridges == sorted(ridges)
    assert widths == sorted(widths)
    assert c.threshold(2)[0] >= c.threshold(1)[0]


@pytest.mark.parametrize("n_total", [1, 2, 3, 10, 1000, 12345])
def test_samples_a_level(n_total: int) -> None:
    """Doubling with c = 4 never has fewer samples than trajectories; a single epoch with c = 1 exactly as many."""
    spec = literal_spec()
    paper, single = constants(spec, "paper"), constants(spec, "tight")
    assert n_total <= paper.samples_a_level(n_total) <= 2 * n_total
    assert single.samples_a_level(n_total) == n_total
    assert constants(spec, "tight", c_replay=0.25).samples_a_level(n_total) == -(-n_total // 4)


def test_fewer_replays_widen_what_stands_for_more_samples_than_there_are() -> None:
    spec = literal_spec(well_specified=True)
    full = np.eye(10)[None] * 100.0
    for bonus_from, factor in (("previous", 2.0), ("own", 1.0)):
        few = constants(spec, "realisable", c_replay=0.25, bonus_from=bonus_from)  # type: ignore[arg-type]
        enough = constants(spec, "realisable", bonus_from=bonus_from)  # type: ignore[arg-type]
        np.testing.assert_allclose(few.width(0, 2, 400, full, 1.0), factor * enough.width(0, 2, 400, full, 1.0))
    assert constants(spec, "tight", c_replay=0.25).ridge(2, 400)[0] == pytest.approx(
        4 * constants(spec, "tight").ridge(2, 400)[0]
    )


def test_overrides_replace_the_formulas() -> None:
    spec = literal_spec()
    c = constants(
        spec,
        "paper",
        ridge=[1.0, 2.0, 3.0],
        bonus_width=0.7,
        trigger=(5.0, 1.0),
        c_replay=2.0,
        epochs="single",
        bonus_from="own",
    )
    assert c.ridge(9, 10**9).tolist() == [1.0, 2.0, 3.0]
    assert c.width(1, 4, 77, NOTHING, 2.0).tolist() == [0.7]
    assert (c.threshold(3), c.c_replay, c.epochs, c.bonus_from) == ((5.0, 1.0), 2.0, "single", "own")
    text = explain(c)
    assert text.count("your number") == 3


def test_explanations_are_numbers_that_hold() -> None:
    c = constants(s4q.problems.low_rank().spec, "paper")
    n = first_phase(c)
    first, slope = c.threshold(1)
    assert n / c.ridge(1, 1)[0] >= first + slope * log(n)
    assert (0.999 * n) / c.ridge(1, 1)[0] < first + slope * log(n)
    assert visits_until_useful(constants(literal_spec(well_specified=True), "realisable")) < 100
    assert visits_until_useful(c) > 10**5
    assert explain(c).startswith("preset paper: H = 3, d = 5")
    for preset in ("practical", "realisable"):
        off, on = (
            explain(constants(literal_spec(well_specified=True), preset, bonus_width=width))  # type: ignore[arg-type]
            for width in (0.0, 0.1)
        )
        assert "there is no bonus at level 0" in off
        assert "the bonus at level 0 falls below" in on


BAD = [
    ({"preset": "magic"}, r"preset must be one of .*got 'magic'"),
    ({"delta": 0.0}, r"delta .*in \(0, 1\); got 0.0"),
    ({"delta": 1.5}, r"delta .*got 1.5"),
    ({"ridge": -1.0}, r"ridge .*got -1.0"),
    ({"ridge": [1.0, 2.0]}, r"ridge must be one number or one per level, \(3,\)"),
    ({"bonus_width": -0.1}, r"bonus_width .*at least 0; got -0.1"),
    ({"trigger": 0.0}, r"trigger .*got 0.0"),
    ({"trigger": (1.0, -1.0)}, r"trigger must not fall .*got -1.0"),
    ({"c_replay": 0.0}, r"c_replay .*got 0.0"),
    ({"epochs": "many"}, r"epochs must be .*got 'many'"),
    ({"bonus_from": "thin air"}, r"bonus_from must be .*got 'thin air'"),
    ({"memory": "cache"}, r"memory must be one of policies, all, sketch; got 'cache'"),
    ({"memory": "sketch", "memory_bytes": -1}, r"memory_bytes .*got -1"),
    ({"memory": "sketch", "memory_bytes": 1.5}, r"memory_bytes .*got 1.5"),
    ({"memory": "all", "memory_bytes": 10**6}, 'memory is "all" here; leave memory_bytes out.*got 1000000'),
    ({"memory": "sketch", "c_replay": 0.5}, 'memory is "sketch" here; leave c_replay out.*got 0.5'),
    ({"max_episodes": 1e6}, r"max_episodes .*write 1_000_000.*got 1000000.0"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_constants_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        s4q.S4Q(s4q.problems.low_rank(), **arguments)  # type: ignore[arg-type]


def test_constants_are_frozen() -> None:
    c: Constants = s4q.S4Q(s4q.problems.low_rank()).constants
    with pytest.raises(AttributeError):
        c.delta = 0.5  # type: ignore[misc]


def test_hand_numbers_with_every_factor() -> None:
    """Phase 3, 1000 trajectories, c = 1/4, no max_episodes, misspecified; and several blocks."""
    c = constants(literal_spec(), "tight", c_replay=0.25)
    lam = 2 / 0.05024276 * log(64 * 10 * 3 * 9 * 10**6 / 0.05) * 4
    assert c.ridge(3, 1000)[1] == pytest.approx(lam, rel=1e-6)
    assert c.threshold(3)[0] == pytest.approx(16.2 * log(64 * 3 * 9 / 0.05), rel=1e-12)
    largest = 1 + 2  # B + r + max(v, B) at a level that is not the last
    alpha_sq = 32 * largest**2 * (10 * log(32 * 250 * largest) + log(8 * 3 * 9 / 0.05)) + 2 + 4 * 7.0
    assert c.width(0, 3, 1000, NOTHING, 7.0)[0] == pytest.approx(sqrt(4 * 4 / 3 * alpha_sq), rel=1e-12)
    blocks = constants(literal_spec(n_blocks=5, block_dim=2, well_specified=True), "realisable")
    t = log(5 * 8 * 3 * 9 / 0.05)
    width = blocks.width(0, 3, 1000, np.zeros((5, 2, 2)), 4.0)
    np.testing.assert_allclose(width, np.full(5, 1.0 * sqrt(2 * t) + 1.0 * 2.0))  # half range (1 + 1)/2, B = 1


def test_a_wide_target_without_a_lower_clip_counts_the_ball() -> None:
    """Misspecified: values may be as low as -B, so targets are bounded by r + max(v, B)."""
    spec = replace(literal_spec(), radius=(1.0, 5.0, 1.0), block_radius=(1.0, 5.0, 1.0))
    loose, strict = constants(spec, "realisable"), constants(replace(spec, well_specified=True), "realisable")
    assert loose.width(0, 1, 1, NOTHING, 1.0)[0] > 2 * strict.width(0, 1, 1, NOTHING, 1.0)[0]


@pytest.mark.parametrize("preset", ["paper", "tight", "realisable"])
@pytest.mark.parametrize("c_replay", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("epochs", ["single", "doubling"])
def test_nothing_falls_whatever_the_replay(preset: str, c_replay: float, epochs: str) -> None:
    c = constants(literal_spec(), preset, c_replay=c_replay, epochs=epochs, bonus_from="previous")  # type: ignore[arg-type]
    totals = [1, 2, 3, 10, 255, 256, 511, 512, 10**4, 10**6]
    ridges = [c.ridge(p, n)[0] for p, n in enumerate(totals, start=1)]
    widths = [c.width(0, p, n, NOTHING, r)[0] for p, (n, r) in enumerate(zip(totals, ridges, strict=True), start=1)]
    assert ridges == sorted(ridges)
    assert widths == sorted(widths)
    for n in totals:
        assert c.samples_a_level(n) * max(1.0, (1 if epochs == "single" else 4) / c_replay) >= n


def test_more_episodes_than_announced_do_not_void_the_constants() -> None:
    few, none = constants(literal_spec(), "tight", max_episodes=100), constants(literal_spec(), "tight")
    assert few.ridge(2, 10)[0] > none.ridge(2, 10)[0]
    assert few.ridge(2, 10**9)[0] == none.ridge(2, 10**9)[0]


def test_doubling_schedule_at_powers_of_two() -> None:
    c = constants(literal_spec(), "paper", c_replay=1.0)
    for power in range(2, 52):
        for slots in (2**power - 3, 2**power - 2, 2**power - 1):
            if slots >= 2:
                finished = c.samples_a_level(slots)
                assert 2 * finished - 2 <= slots < 4 * finished - 2  # 2 + 4 + ... + finished <= slots


def test_a_tiny_ball_does_not_break_the_logarithm() -> None:
    spec = replace(literal_spec(), radius=(0.01, 0.01, 0.01), block_radius=(0.01, 0.01, 0.01))
    assert constants(spec, "tight").width(2, 1, 1, NOTHING, 1.0)[0] > 0


def test_what_is_guaranteed_follows_the_constants() -> None:
    spec = s4q.problems.low_rank().spec
    assert guarantee(constants(spec, "tight")).startswith("Theorem 1, ")
    assert guarantee(constants(spec, "tight", trigger=1.0)).startswith("optimism, not Theorem 1")
    assert guarantee(constants(spec, "tight", ridge=1.0)).startswith("void")


def test_the_first_phase_of_pooled_steps() -> None:
    mdp = s4q.problems.river_swim(6, horizon=12)
    for pool, episodes in ((True, 1), (False, 3)):
        c = constants(mdp.spec, "realisable", pool=pool)
        assert first_phase(c) == episodes
        run = s4q.run(
            s4q.S4Q(mdp, "realisable", pool=pool), s4q.collectors.CountCollector(mdp, seed=0), 100, record=True
        )
        assert run.record is not None
        assert run.record.phases[0].n_episodes == episodes


@pytest.mark.parametrize("name", ["stationary", "well_specified"])
def test_words_are_no_flags(name: str) -> None:
    features = s4q.features.OneHot(3, n_actions=2)
    with pytest.raises(ValueError, match=f"{name} must be True or False .*got 'no'"):
        s4q.Spec.of(features, horizon=3, reward_range=(0, 1), **{name: "no"})


def test_more_episodes_than_can_be_counted_are_refused_at_once() -> None:
    mdp = s4q.problems.chain()
    with pytest.raises(ValueError, match="counted in 64 bits, so at most 400000000000000000 episodes"):
        s4q.run(s4q.S4Q(mdp), s4q.collectors.CountCollector(mdp, seed=0), 10**30)


def test_practical_has_a_ridge_where_a_fit_must_speak_of_states_it_has_not_seen() -> None:
    smooth = s4q.features.PerAction(s4q.features.Fourier(low=[0.0], high=[1.0], order=3), n_actions=2)
    inexact = s4q.Spec.of(smooth, horizon=2, reward_range=(0, 1))
    exact = s4q.Spec.of(smooth, horizon=2, reward_range=(0, 1), well_specified=True)
    one_hot = s4q.Spec.of(s4q.features.OneHot(5, n_actions=2), horizon=2, reward_range=(0, 1))
    assert not one_hot.well_specified
    ridges = [constants(spec, "practical").ridge(3, 100).tolist() for spec in (inexact, exact, one_hot)]
    assert ridges == [[1e-3] * 2, [1e-6] * 2, [1e-6] * 2]
