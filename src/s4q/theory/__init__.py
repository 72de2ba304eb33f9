"""The theory made computable: exact quantities of the paper on finite MDPs. No learner imports it."""

from s4q.theory.auditing import Audit, AuditRow, SeedAudit, SeedRow, audit, over_seeds
from s4q.theory.covariance import expected_covariances, expected_grams
from s4q.theory.information_gain import EffectiveDim, effective_dim, effective_dim_cap, effective_dims, realised_gain
from s4q.theory.s3q_audit import audited_s3q
from s4q.theory.s3q_theorem import Theorem2, theorem2
from s4q.theory.structure import (
    Structure,
    bellman_backup,
    bellman_errors,
    best_on_policy_fit,
    check_structure,
    comparator_errors,
)
from s4q.theory.transfer_bracket import (
    TransferBracket,
    TransferWitness,
    transfer_error_definition1,
    transfer_error_definition2,
)
from s4q.theory.transfer_errors import (
    PhaseTransfer,
    phase_transfers,
    transfer_error,
    transfer_error_realised,
    transfer_error_runs,
    transfer_error_search,
    transfer_error_upper,
)

__all__ = [
    "Audit",
    "AuditRow",
    "EffectiveDim",
    "PhaseTransfer",
    "SeedAudit",
    "SeedRow",
    "Structure",
    "Theorem2",
    "TransferBracket",
    "TransferWitness",
    "audit",
    "audited_s3q",
    "bellman_backup",
    "bellman_errors",
    "best_on_policy_fit",
    "check_structure",
    "comparator_errors",
    "effective_dim",
    "effective_dim_cap",
    "effective_dims",
    "expected_covariances",
    "expected_grams",
    "over_seeds",
    "phase_transfers",
    "realised_gain",
    "theorem2",
    "transfer_error",
    "transfer_error_definition1",
    "transfer_error_definition2",
    "transfer_error_realised",
    "transfer_error_runs",
    "transfer_error_search",
    "transfer_error_upper",
]
