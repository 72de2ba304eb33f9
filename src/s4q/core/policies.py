"""Policies: Markov, possibly stochastic, and mixtures of them. A policy draws nothing; the collector samples."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, final

import numpy as np

from s4q.core.blocks import Array, Phi, States
from s4q.core.codec import SavedAs
from s4q.core.linear_q import LinearQ
from s4q.core.spec import Spec
from s4q.core.validation import finite_array, require_count, require_probabilities, require_shape


class Policy(Protocol):
    """A Markov policy. The collector samples; the policy draws nothing.

    It must not change once it has been played: collectors remember what they have made of it.
    """

    def probabilities(self, h: int, states: States, phi: Phi) -> Array:
        """Action probabilities, (n, n_actions)."""
        ...


def require_policy(name: str, policy: object) -> None:
    """A policy has a method `probabilities`."""
    if not callable(getattr(policy, "probabilities", None)):
        raise ValueError(
            f"{name} must be a policy: probabilities(h, states, phi) -> (n, n_actions); got {type(policy).__name__}"
            + ("; pass its q" if hasattr(policy, "q") else "")
        )


@final
@dataclass(frozen=True, slots=True)
class UniformPolicy:
    """Every action with the same probability.

    Args:
        n_actions: Number of actions.

    >>> UniformPolicy(4).probabilities(0, np.zeros(1), Phi(np.zeros((1, 4, 1)), np.zeros((1, 4), int))).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    n_actions: int

    def __post_init__(self) -> None:
        require_count("n_actions", self.n_actions, "the number of actions")

    def probabilities(self, h: int, states: States, phi: Phi) -> Array:
        """(n, n_actions)"""
        del h, phi
        return np.full((len(states), self.n_actions), 1.0 / self.n_actions)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """One of several policies, drawn once per episode.

    Args:
        policies: The policies.
        weights: Probability of each, (number of policies,).

    >>> Mixture([UniformPolicy(2), UniformPolicy(2)], [0.25, 0.75])
    Mixture(2 policies, weights 0.25, 0.75)
    """

    policies: Annotated[Sequence[Policy], SavedAs(tuple[LinearQ | UniformPolicy, ...])]
    weights: Annotated[Array, "n"]  # one per policy

    def __post_init__(self) -> None:
        policies = tuple(self.policies) if isinstance(self.policies, Iterable) else (self.policies,)
        weights = finite_array("weights", self.weights)
        if not policies:
            raise ValueError("policies must hold at least one policy; got none")
        for j, policy in enumerate(policies):
            require_policy(f"policies[{j}]", policy)
        require_shape("weights", weights, (len(policies),), "(number of policies,)")
        require_probabilities("weights", weights)
        weights.setflags(write=False)
        object.__setattr__(self, "policies", policies)
        object.__setattr__(self, "weights", weights)

    def __repr__(self) -> str:
        shown = ", ".join(f"{weight:.3g}" for weight in self.weights[:4].tolist())
        more = ", ..." if len(self.policies) > 4 else ""
        return f"Mixture({len(self.policies)} policies, weights {shown}{more})"


def as_mixture(controller: Policy | Mixture, spec: Spec) -> Mixture:
    """A controller of the problem as a mixture; a single policy is one of itself alone."""
    if not isinstance(controller, Mixture):
        require_policy("controller", controller)
        controller = Mixture([controller], np.ones(1))
    for policy in controller.policies:
        if isinstance(policy, UniformPolicy) and policy.n_actions != spec.n_actions:
            raise ValueError(f"controller has {policy.n_actions} actions, but the problem has {spec.n_actions}")
        shape = (policy.horizon, *policy.levels[0].theta.shape) if isinstance(policy, LinearQ) else spec.theta_shape
        if shape != spec.theta_shape:
            raise ValueError(
                f"controller holds a LinearQ whose theta has shape {shape}, but the problem needs (H, n_blocks, k) = "
                f"{spec.theta_shape}; use a LinearQ that was made for this horizon and these features"
            )
    return controller
