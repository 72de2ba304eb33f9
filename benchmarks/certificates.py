"""Certificates against the truth: how far the certified policy may be from the best, and how far it is."""

from collections.abc import Sequence

import numpy as np
from rich.table import Table

import s4q
from s4q.learners.presets import PresetName
from s4q.problems import FiniteMDP

RIVER, CHAIN, LINEAR = s4q.problems.river_swim(6, horizon=12), s4q.problems.chain(), s4q.problems.low_rank()
TABULAR = (("river_swim(6, 12)", RIVER), ("chain()", CHAIN))
POOLED = {True: "pooled", False: "not pooled"}
SEEDS = range(3)


def certified(mdp: FiniteMDP, preset: PresetName, episodes: int, pool: bool) -> s4q.Run:
    learner = s4q.S4Q(mdp, preset, pool=pool)
    return s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), episodes, record=True)


def gap_table() -> Table:
    """The certified gap at the end of a run of known length."""
    result = Table(title="Gaps to V*, certified and true; delta = 0.05, one seed")
    result.caption = (
        "target: certified gap below half the value bound on river_swim and chain by 10^7 pooled, 10^9 not pooled; "
        "promise: mean of the newest Q at the start states; what lies between it and V* is bonus"
    )
    headers = ("problem", "preset", "episodes", "value bound", "V*", "upper", "promise", "lower", "certified", "true")
    for header in headers:
        result.add_column(header, justify="right")
    rows: list[tuple[str, FiniteMDP, PresetName, int, bool]] = []
    for name, mdp in TABULAR:
        rows += [(name, mdp, "realisable", 10**k, True) for k in (6, 7)]
        rows += [(name, mdp, "realisable", 10**k, False) for k in (8, 9)]
    rows += [("low_rank()", LINEAR, "realisable", 10**k, False) for k in (4, 6, 8)]
    rows += [("low_rank()", LINEAR, "tight", 10**k, False) for k in (13,)]
    for name, mdp, preset, episodes, pool in rows:
        run = certified(mdp, preset, episodes, pool)
        found, record = run.certificate, run.record
        if found is None or record is None or found.policy is None:
            raise ValueError(f"{name} with {preset} has no certificate")
        newest = record.unfinished or record.phases[-1]
        promise = float(mdp.spec.to_user_units(0, np.array((newest.start_value_sum or 0.0) / newest.n_episodes)))
        result.add_row(
            name,
            f"{preset}{', pooled' if pool else ''}",
            f"10^{np.log10(episodes):.0f}",
            f"{found.largest_gap:.3g}",
            f"{mdp.v_star:.4f}",
            f"{found.upper:.4f}",
            f"{promise:.4f}",
            f"{found.lower:.4f}",
            "vacuous" if found.vacuous else f"{found.gap:.4f}",
            f"{mdp.v_star - mdp.value(found.policy):.1e}",
        )
    return result


def stopping_table() -> Table:
    """When a run may stop."""
    result = Table(title="Episodes until stop_when_gap ends a run (realisable, delta = 0.05, one seed)")
    shares = (0.5, 0.2, 0.1, 0.05)
    for header in ("problem", "steps", *(f"gap {share:g} v" for share in shares)):
        result.add_column(header, justify="right")
    for name, mdp in TABULAR:
        for pool in (True, False):
            eps = [share * mdp.spec.value_bound[0] for share in shares]
            result.add_row(name, POOLED[pool], *(f"{n:.2g}" for n in episodes_until(mdp, pool, eps)))
    return result


def episodes_until(mdp: FiniteMDP, pool: bool, eps: Sequence[float]) -> list[int]:
    """Episodes until each of these falling gaps is certified: one run, stopped and taken up again."""
    learner, collector = s4q.S4Q(mdp, "realisable", pool=pool), s4q.collectors.CountCollector(mdp, seed=0)
    played: list[int] = []
    for one in eps:
        run = s4q.run(learner, collector, 10**11, stop_when_gap=one)
        played.append((played[-1] if played else 0) + run.episodes)
    return played


def share_table() -> Table:
    """What a share of evaluations gains, and where the gap comes from."""
    result = Table(title="Episodes until a gap of 0.1 V* is certified, by evaluation_share (realisable, delta = 0.05)")
    result.caption = (
        f"medians of {len(SEEDS)} seeds; parts of the gap where the run stopped, as shares of V*: bonus = upper - V*, "
        "policy = V* - its value, returns = its value - lower"
    )
    for header in ("problem", "steps", "share", "episodes", "against 0", "bonus", "policy", "returns", "regret"):
        result.add_column(header, justify="right")
    cases = [("chain()", CHAIN, True), ("chain()", CHAIN, False), ("river_swim(6, 12)", RIVER, True)]
    for name, mdp, pool in [*cases, ("low_rank()", LINEAR, False)]:
        first: float | None = None
        for share in (0.0, 0.1, 0.3, 0.5):
            rows = np.array([_until_a_tenth(mdp, pool, share, seed) for seed in SEEDS])
            n, bonus, policy, returns, regret = np.median(rows, axis=0).tolist()
            first = n if first is None else first
            parts = (f"{part / mdp.v_star:.4f}" for part in (bonus, policy, returns))
            result.add_row(name, POOLED[pool], f"{share:g}", f"{n:.2g}", f"{n / first:.2f}", *parts, f"{regret:.2g}")
    return result


def _until_a_tenth(mdp: FiniteMDP, pool: bool, share: float, seed: int) -> tuple[float, ...]:
    """Episodes, the three parts of the gap, regret."""
    learner, collector = s4q.S4Q(mdp, "realisable", pool=pool), s4q.collectors.CountCollector(mdp, seed=seed)
    run = s4q.run(learner, collector, 10**12, stop_when_gap=0.1 * mdp.v_star, evaluation_share=share)
    found = run.certificate
    if found is None or found.policy is None or run.regret is None:
        raise ValueError("the run has no certificate")
    value = mdp.value(found.policy)
    return run.episodes, found.upper - mdp.v_star, mdp.v_star - value, value - found.lower, run.regret


def spread_table() -> Table:
    """How noisy the targets of a fit are, against the half range s_h that the widths of `realisable` allow for."""
    result = Table(title="Standard deviation of r + V*(s') over s_h, mean along the best policy")
    for header in ("problem", "deviation", "half range", "ratio"):
        result.add_column(header, justify="right")
    for name, mdp in (*TABULAR, ("low_rank()", LINEAR)):
        spec, here, deviation, half = mdp.spec, np.array(mdp.start), 0.0, 0.0
        for h in range(mdp.horizon):
            rows, best = np.arange(mdp.n_states), mdp.q_star[h].argmax(axis=1)
            after = mdp.q_star[h + 1].max(axis=1) if h + 1 < mdp.horizon else np.zeros(mdp.n_states)
            moves, paid = mdp.transitions[h][rows, best], mdp.rewards[h][rows, best] - spec.reward_min
            coin = mdp.reward_noise == "bernoulli"  # it pays all or nothing
            noise = paid * (spec.reward_max - spec.reward_min - paid) * coin
            spread = np.sqrt(np.maximum(moves @ after**2 - (moves @ after) ** 2 + noise, 0.0))
            deviation, half = deviation + float(here @ spread) / mdp.horizon, half + spec.half_range(h) / mdp.horizon
            here = here @ moves
        result.add_row(name, f"{deviation:.3f}", f"{half:.3f}", f"{deviation / half:.2f}")
    return result


if __name__ == "__main__":
    from rich.console import Console

    for table in (gap_table, stopping_table, share_table, spread_table):
        Console(width=130).print(table())
