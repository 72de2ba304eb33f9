"""Under misspecification the plateau of average regret follows the transfer error of the run, not the sup norm."""

from dataclasses import dataclass

import numpy as np
import pytest

import s4q
from s4q import FiniteMDP, problems
from s4q.theory import check_structure, transfer_error_realised

EPISODES = 10**10


@dataclass(frozen=True)
class Outcome:
    early: float  # regret an episode after 10^8 episodes, about
    late: float  # and at the end
    realised: float
    sup_norm: float


def explore(mdp: FiniteMDP) -> Outcome:
    assert not mdp.spec.well_specified
    run = s4q.run(s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=0), EPISODES, record=True)
    assert run.record is not None
    averages = [(p.episodes, p.regret / p.episodes) for p in run.curve if p.regret is not None]
    early = next(average for episodes, average in averages if episodes >= 10**8)
    return Outcome(
        early,
        averages[-1][1],
        transfer_error_realised(mdp, run.record),
        float(check_structure(mdp).closure_residual.max()),
    )


def follows(errors: np.ndarray, plateaus: np.ndarray, noise: float = 1e-3) -> bool:
    """Is every plateau, up to what is still falling, between a fifth of the error and twice the error?"""
    return bool(np.all(plateaus <= 2 * errors + noise) and np.all(plateaus >= errors / 5 - noise))


@pytest.mark.slow
def test_the_plateau_follows_the_transfer_error_and_not_the_sup_norm() -> None:
    amounts = (0.1, 0.2, 0.5)
    perturbed = [explore(problems.perturbed_low_rank(amount=a, seed=s)) for a in amounts for s in (0, 1)]
    harmless = [explore(problems.harmless_error(kind=kind)) for kind in ("unvisited", "cancelling")]
    for outcome in perturbed:
        assert outcome.late > 0.3 * outcome.early  # it has stopped falling
        assert outcome.late <= 2 * outcome.realised  # optimism lost once and paid once
    slope = np.polyfit(np.log([o.realised for o in perturbed]), np.log([o.late for o in perturbed]), 1)[0]
    assert 0.75 < slope < 1.25
    for outcome in harmless:
        assert outcome.realised < 1e-8
        assert outcome.late < 0.1 * outcome.early  # it goes on falling
        # The same sup-norm error as the least perturbed problem, and a fifth of its regret at most.
        assert outcome.sup_norm > 0.9 * min(o.sup_norm for o in perturbed)
        assert outcome.late < 0.2 * min(o.late for o in perturbed)
    everything = [*perturbed, *harmless]
    plateaus = np.array([o.late for o in everything])
    assert follows(np.array([o.realised for o in everything]), plateaus)
    assert not follows(np.array([o.sup_norm for o in everything]), plateaus)
