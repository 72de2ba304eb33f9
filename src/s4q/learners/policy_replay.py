"""PolicyReplayMemory: S4Q replays past policies instead of storing data."""

from dataclasses import dataclass, field
from typing import final

import numpy as np

from s4q.core.codec import Positive
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Mixture, Transitions
from s4q.core.validation import require_count, require_shape
from s4q.learners.presets import Constants


@final
@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """A policy and the number of main-loop trajectories it played: (pi_j, m_j)."""

    policy: LinearQ
    n_episodes: Positive


@final
@dataclass(eq=False, repr=False)
class PolicyReplayMemory:
    """The policies of all phases so far, each with its count. Never a transition.

    >>> memory = PolicyReplayMemory()
    >>> memory.append(LinearQ.from_arrays(np.zeros((1, 1, 1))), 3)
    >>> memory.append(LinearQ.from_arrays(np.ones((1, 1, 1))), 1)
    >>> memory.n_episodes, memory.controller().weights.tolist()
    (4, [0.75, 0.25])
    """

    entries: list[Entry] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def n_episodes(self) -> int:
        """m_tot, the trajectories of all main loops so far."""
        return sum(entry.n_episodes for entry in self.entries)  # [Alg2:TotalCounter]

    @property
    def nbytes(self) -> int:
        """Bytes held by the policies."""
        return sum(entry.policy.nbytes for entry in self.entries)

    @property
    def keeps_steps(self) -> bool:
        """False: a main loop need not return its steps."""
        return False

    @property
    def policies(self) -> list[LinearQ]:
        """The policies, without their counts."""
        return [entry.policy for entry in self.entries]

    @property
    def sampled_steps(self) -> None:
        """No steps are held, so none was dropped."""
        return None

    def __repr__(self) -> str:
        return f"PolicyReplayMemory({len(self)} policies of {self.n_episodes:,} episodes, {self.nbytes:,} bytes)"

    def require_fit(self, constants: Constants) -> None:
        """Refuse a memory of another problem, or where the constants want steps.

        Args:
            constants: Of the S4Q whose memory it is.
        """
        if constants.memory != "policies":
            raise ValueError(f'the memory of this S4Q must hold steps ("{constants.memory}"), but it holds policies')
        for policy in self.policies:
            require_shape("theta", policy.theta, constants.spec.theta_shape, "(H, n_blocks, k)")

    def add(self, kept: Transitions | None, n_episodes: int) -> None:
        """Nothing is remembered of single episodes. The arguments are those of Memory."""

    def append(self, policy: LinearQ, n_episodes: int) -> None:
        """Remember a policy; one whose parameters are equal bit for bit only has its count raised.

        Args:
            policy: The policy of a phase.
            n_episodes: Trajectories of its main loop.
        """
        require_count("n_episodes", n_episodes, "the number of main-loop trajectories of the policy")
        for i, entry in enumerate(self.entries):
            if entry.policy.same_as(policy):
                self.entries[i] = Entry(entry.policy, entry.n_episodes + n_episodes)
                return
        self.entries.append(Entry(policy, n_episodes))

    def source(self) -> Mixture:
        """The policies are replayed."""
        return self.controller()

    def controller(self) -> Mixture:
        """At the start of an episode, policy j with probability m_j / m_tot."""
        if not self.entries:
            raise ValueError("the memory is empty, so there is no controller yet; play a phase first")
        counts = np.array([entry.n_episodes for entry in self.entries], dtype=np.float64)
        return Mixture(self.policies, counts / counts.sum())  # [Alg2:Controller]
