"""The theory made computable: exact quantities of the paper on finite MDPs. No learner imports it."""

from s4q.theory.covariance import expected_covariances, expected_grams
from s4q.theory.structure import bellman_backup, bellman_errors, best_on_policy_fit, comparator_errors
from s4q.theory.transfer_error import (
    PhaseTransfer,
    phase_transfers,
    terr_realised,
    terr_runs,
    terr_search,
    terr_upper,
    transfer_error,
)

__all__ = [
    "PhaseTransfer",
    "bellman_backup",
    "bellman_errors",
    "best_on_policy_fit",
    "comparator_errors",
    "expected_covariances",
    "expected_grams",
    "phase_transfers",
    "terr_realised",
    "terr_runs",
    "terr_search",
    "terr_upper",
    "transfer_error",
]
