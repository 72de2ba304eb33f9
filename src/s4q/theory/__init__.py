"""The theory made computable: exact quantities of the paper on finite MDPs, and audits of runs against them.

Researchers call these functions; `s4q audit` prints the audits. No learner and no collector imports this package.
"""

from s4q.theory.auditing import Audit, AuditRow, SeedAudit, SeedRow, audit, over_seeds
from s4q.theory.definitions import (
    Structure,
    bellman_backup,
    bellman_errors,
    best_on_policy_fit,
    check_structure,
    comparator_errors,
    expected_covariances,
    expected_grams,
)
from s4q.theory.information_gain import EffectiveDim, effective_dim, effective_dim_cap, effective_dims, realised_gain
from s4q.theory.s3q_audit import Theorem2, audited_s3q, theorem2
from s4q.theory.transfer_errors import (
    PhaseTransfer,
    TransferBracket,
    TransferWitness,
    phase_transfers,
    transfer_error,
    transfer_error_definition1,
    transfer_error_definition2,
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
