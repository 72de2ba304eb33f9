"""The rows of an audit, in their order: what is assumed, what was done as prescribed, what the paper states."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

from s4q.theory import as_prescribed, assumptions, measured
from s4q.theory import statements as say
from s4q.theory.evidence import Evidence
from s4q.theory.parts import Part

Needs = Literal["nothing", "width", "optimism", "theorem 1"]  # what a preset must prove for a statement to be claimed
# How often a row may fail: "identity" never, because it is algebra; "always" never; "rarely" with chance RARE;
# "delta" in a share delta of the seeds.
Kind = Literal["identity", "always", "rarely", "delta"]


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One line of an audit, before anything is measured."""

    name: str
    where: str  # label in the paper's source, or what it is about
    kind: Kind
    note: str = ""


@final
@dataclass(frozen=True, slots=True)
class Statement:
    """One line of the audit of an S4Q run."""

    row: Row
    test: Callable[[Evidence], list[Part]]  # no parts: nothing to check in this run
    needs: Needs = "nothing"


def _elsewhere(e: Evidence) -> list[Part]:
    del e
    return []


_REPLAYED = "lem:EquivalenceWithLeastSquares"
_BY_S3Q = "S4Q calls S3Q with a bonus: see Theorem 3, or --algorithm s3q"

ASSUMPTIONS = (
    Statement(Row("assumed: features are exact", "asm:LowRank", "always"), assumptions.features_exact),
    Statement(Row("assumed: the radius fits", "class Q^lin", "always"), assumptions.radius_fits),
    Statement(Row("assumed: the value bound holds", "class Q^all", "always"), assumptions.value_bound_holds),
    Statement(Row("assumed: features of norm 1", "EqnBoundedFeatures", "always"), assumptions.features_bounded),
)

AS_PRESCRIBED = (
    Statement(Row("prescribed ridge: relative error", "alg:Sequoia", "always"), as_prescribed.ridge),
    Statement(Row("prescribed width: relative error", "eqn:Bonus", "always"), as_prescribed.width),
    Statement(Row("prescribed ball: relative error", "alg:ShermanMorrisonUpdate", "always"), as_prescribed.ball),
    Statement(Row("bonus in Gram + prescribed ridge", "eqn:Bonus", "always"), as_prescribed.bonus_matrix),
    Statement(Row("progress at the trigger", "line:NewPolicyTrigger", "always"), say.trigger),
    Statement(Row("Sigma_ref = Gram of the replay", "alg:Sequoia", "always"), as_prescribed.sigma_ref),
    Statement(Row("fit = least squares of its samples", _REPLAYED, "always"), as_prescribed.fits),
    Statement(Row("trajectories counted and played", "alg:Sequoia", "always"), measured.trajectories),
    Statement(Row("replay length and c m_tot", "alg:Sequoia", "always"), measured.replay_lengths),
    Statement(Row("replay weights and n_j/m_tot", "alg:Sequoia", "rarely"), measured.replay_weights),
    Statement(Row("Gram of a fit and its mean", "sampling", "rarely"), measured.replayed_grams),
    Statement(Row("targets of a fit and their mean", "sampling", "rarely"), measured.targets),
    Statement(Row("Gram of main loops and its mean", "sampling", "rarely"), measured.main_loop_grams),
)

IN_THE_PAPER = (
    Statement(Row("Theorem 1 (a): average regret", "thm:Sequoia", "delta"), say.regret, "theorem 1"),
    Statement(Row("Theorem 1 (b): floats held", "thm:Sequoia", "delta"), say.memory),
    Statement(Row("Theorem 1 (b): products a step", "thm:Sequoia", "identity", "counted, not timed"), say.work),
    Statement(Row("Theorem 2: S3Q without bonus", "thm:Q-learning", "always", _BY_S3Q), _elsewhere),
    Statement(Row("Theorem 3 (a): (err + Delta)/(U + b)", "thm:Q-learningExp", "delta"), say.sandwich, "width"),
    Statement(Row("Theorem 3 (b): E(V - V^pi)", "thm:Q-learningExp", "delta"), say.promise, "width"),
    Statement(Row("fit: |phi.(theta - theta_pi)|/U", "lem:Convergence2PopulationMinimizer", "delta"), say.fit, "width"),
    Statement(Row("bonus b/U", "lem:BonusBound", "delta"), say.bonus, "width"),
    Statement(Row("near-optimism: Q - Q* + errors to go", "lem:Optimism", "delta"), say.optimism, "optimism"),
    Statement(Row("near-optimism at the start", "lem:Optimism", "delta"), say.optimism_at_start, "optimism"),
    Statement(Row("replayed regret of an S3Q call", "lem:PhasedRegret", "delta"), say.replays),
    Statement(Row("elliptic potential", "lem:EllipticPotential", "delta"), say.potential, "theorem 1"),
    Statement(Row("phases", "lem:NumberOfPhases", "delta"), say.number_of_phases, "theorem 1"),
    Statement(Row("expected over seen progress", "lem:ProportionalEstimate", "delta"), say.proportional, "theorem 1"),
    Statement(
        Row("covariance over its mean", "prop:ConcentrationRegularizedCovariance", "delta"), say.matrix, "theorem 1"
    ),
    Statement(Row("log determinants", "lem:LogDet", "delta"), say.log_det, "theorem 1"),
    Statement(Row("information gain of a phase", "LemInfoGain", "identity"), say.information_gain),
    Statement(Row("information gathered, and its cap", "Bound on Information Gain", "always"), say.information_cap),
    Statement(Row("error identity", "proof of thm:Q-learning", "identity"), say.error_identity),
    Statement(Row("recursion = least squares", _REPLAYED, "identity"), say.least_squares),
    Statement(Row("samples of a level", "lem:OrderOfUpdates", "always"), say.sample_count),
    Statement(Row("excess loss identity", "lem:ExcessLoss", "identity"), say.excess_loss),
    Statement(Row("excess risk of the fit", "lem:Sigma2ERM", "identity"), say.excess_risk),
)
