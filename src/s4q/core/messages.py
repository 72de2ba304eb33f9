"""What learners ask and collectors answer: plain frozen dataclasses, and the protocols of the wall between them.

    request = learner.ask(max_episodes)     # which policies to play, how many episodes, what to add up
    answer = collector.collect(request)     # the sums, nothing else
    learner.tell(request, answer)

A request is an `Asks[A]`, where A is the class of its answer, so a type checker sees a wrong answer. Learners and
collectors import this module and never each other. Levels are h = 0..H-1, the paper's h minus 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import log
from typing import Generic, Protocol, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, IntArray, Phi, States
from s4q.core.codec import Positive
from s4q.core.least_squares import Moments
from s4q.core.linear_q import LinearQ
from s4q.core.optimism import QLevel
from s4q.core.policies import Mixture, Policy, UniformPolicy, require_policy
from s4q.core.spec import Spec
from s4q.core.transitions import Transitions
from s4q.core.validation import frozen_array, require_count, require_finite, require_kind, require_shape

MOST_STEPS = 4 * 10**18  # of one run: counts are int64, which holds twice as many

ROUNDING = 1e-9  # by so much a sum may fall short of a threshold and still count as having reached it

__all__ = [
    "MOST_STEPS",
    "Answer",
    "Asks",
    "Collector",
    "Evaluate",
    "Explore",
    "FeatureMap",
    "Learner",
    "Mixture",
    "Phi",
    "Policy",
    "QLevel",
    "Regress",
    "Regression",
    "Request",
    "Returns",
    "Shard",
    "Spec",
    "Transitions",
    "UniformPolicy",
    "Visits",
]


class FeatureMap(Protocol):
    """Features of a batch of states at level h, for every action; each vector has norm at most 1.

    Collectors read three more attributes where a map has them. `stationary = True` says that the features do not depend
    on h. `validates_output = True` says that the map checks norms and blocks itself, so a collector need not check them
    again. `same_for_all_actions = True` says that the vector of a state is the same for every action and only the
    block differs, so collectors use the vector of action 0.
    """

    @property
    def n_actions(self) -> int: ...
    @property
    def n_blocks(self) -> int: ...
    @property
    def block_dim(self) -> int: ...
    def __call__(self, h: int, states: States) -> Phi: ...


A = TypeVar("A", bound="Regression | Visits | Returns")


class Asks(Generic[A]):
    """A request whose answer is an A."""

    __slots__ = ()


@final
@dataclass(frozen=True, eq=False, slots=True)
class Regress(Asks["Regression"]):
    """Play n episodes, each with one policy of the mixture, and add up the samples (phi, r + target(s')) of `level`.

    A request answered in part is asked again under the same id for the rest.

    Args:
        id: Number of the request. Requests with different numbers have different random draws.
        level: The level whose steps are samples.
        mixture: The policies, one of which is drawn for each episode.
        target: The target network at level + 1; None at the last level, after which the value is 0.
        n_episodes: Episodes to play.
        pool: True if every step of an episode is a sample, whatever its level.
        done: Episodes already answered under the same id.
    """

    id: int
    level: int
    mixture: Mixture
    target: QLevel | None
    n_episodes: int
    pool: bool = False
    done: int = 0

    def __post_init__(self) -> None:
        _check_request(self.id, self.n_episodes, self.done)
        require_count("level", self.level, "the level whose steps are samples", at_least=0)
        require_kind("mixture", self.mixture, Mixture, ", as Mixture([policy], [1.0]) for one policy")
        if not (self.target is None or isinstance(self.target, QLevel)):
            got = type(self.target).__name__
            raise ValueError(f"target must be the QLevel of level + 1 (`q.levels[level + 1]`), or None; got {got}")


@final
@dataclass(frozen=True, eq=False, slots=True)
class Explore(Asks["Visits"]):
    """Play the policy until, at some level, the sum of |phi|^2 in the metric of Sigma_ref reaches the threshold.

    Args:
        id: Number of the request. Requests with different numbers have different random draws.
        policy: The policy to play.
        whitener: W with W Sigma_ref W^T = I, (H, n_blocks, k, k); with `pool` one for all levels, (1, n_blocks, k, k).
        threshold: (a, b) means a + b log n after n episodes.
        n_episodes: The most episodes to play.
        keep: The first so many episodes of this request return their transitions.
        pool: True if the sum runs over the steps of all levels.
        done: Episodes already answered under the same id.
        progress: What those added to the sums, (H,), or (1,) with `pool`; None means nothing yet.
        at_least: Episodes of the id that are played whatever the sums say. 1 by default.
    """

    id: int
    policy: Policy
    whitener: Array = field(repr=False)
    threshold: tuple[float, float]
    n_episodes: int
    keep: int = 0
    pool: bool = False
    done: int = 0
    progress: Array | None = field(default=None, repr=False)
    at_least: int = 1

    def __post_init__(self) -> None:
        if self.whitener is None:
            raise ValueError("whitener is needed, (H, n_blocks, k, k), or (1, n_blocks, k, k) with pool; got None")
        object.__setattr__(self, "whitener", frozen_array(self.whitener))  # collectors remember what they make of it
        if self.progress is not None:
            object.__setattr__(self, "progress", frozen_array(self.progress))
            require_shape("progress", self.progress, (len(self.whitener),), "(H,), or (1,) with pool,")
        if self.pool and len(self.whitener) != 1:
            shape = np.shape(self.whitener)
            raise ValueError(f"whitener must be one for all levels, (1, n_blocks, k, k), with pool; got shape {shape}")
        require_finite("whitener", self.whitener)
        require_policy("policy", self.policy)
        _check_request(self.id, self.n_episodes, self.done)
        require_count("keep", self.keep, "the number of first episodes whose transitions return", at_least=0)
        require_count("at_least", self.at_least, "the number of episodes that are played in any case")
        pair = isinstance(self.threshold, tuple) and len(self.threshold) == 2
        if not (pair and self.threshold[0] >= 0 and self.threshold[1] >= 0):  # NaN fails here too
            raise ValueError(f"threshold must be (a, b), two numbers of at least 0; got {self.threshold}")

    def start(self) -> Array:
        """Progress before the first episode of this request."""
        return np.zeros(len(self.whitener)) if self.progress is None else self.progress

    def threshold_at(self, n_episodes: int) -> float:
        """The threshold after `n_episodes` of the phase (earlier parts included), less what rounding may cost a sum.

        With one-hot features sums often meet the threshold exactly. Without the allowance, rounding would decide
        whether they reach it, and the same problem with scaled features would take another course.
        """
        threshold = self.threshold[0] + self.threshold[1] * log(max(n_episodes, 1))
        return threshold - ROUNDING * min(threshold, 1.0)

    def crossed(self, progress: ArrayLike, n_episodes: int) -> bool:
        """True if some level has reached the threshold after `n_episodes` of the phase (earlier parts included)."""
        return self.may_cross(progress, n_episodes, n_episodes)

    def may_cross(self, progress: ArrayLike, first: int, last: int) -> bool:
        """False if none of the episodes first..last of the phase can have crossed. `progress`: after the last of them.

        Progress and threshold only grow, so the first episode that may end the phase has the lowest threshold.
        """
        earliest = max(first, self.at_least)
        return earliest <= last and bool(np.max(progress) >= self.threshold_at(earliest))  # [Alg2:NewPolicyTrigger]


@final
@dataclass(frozen=True, eq=False, slots=True)
class Evaluate(Asks["Returns"]):
    """Play n episodes of the policy and tell what they returned. Nothing is learned from them.

    Its episodes never share random draws with those of a Regress or an Explore, whatever their ids.

    Args:
        id: Number of the request. Requests with different numbers have different random draws.
        policy: The policy to play.
        n_episodes: Episodes to play.
        done: Episodes already played under the same id.
    """

    id: int
    policy: Policy
    n_episodes: int
    done: int = 0

    def __post_init__(self) -> None:
        _check_request(self.id, self.n_episodes, self.done)
        require_policy("policy", self.policy)


def _check_request(request_id: int, n_episodes: int, done: int) -> None:
    require_count("id", request_id, "the number of the request", at_least=0)
    require_count("n_episodes", n_episodes, "the number of episodes to play")
    require_count("done", done, "the number of episodes already answered", at_least=0)


Request = Regress | Explore | Evaluate


@final
@dataclass(frozen=True, eq=False, slots=True)
class Regression:
    """The answer to Regress. `+` merges two answers to parts of a request.

    Args:
        moments: Sums of the samples.
        episodes_per_policy: Episodes that each policy of the mixture has played.
        n_steps: Environment steps taken.
    """

    moments: Moments = field(repr=False)
    episodes_per_policy: IntArray
    n_steps: int

    @property
    def n_episodes(self) -> int:
        return int(self.episodes_per_policy.sum())

    def __add__(self, other: "Regression") -> "Regression":
        return Regression(
            self.moments + other.moments,
            self.episodes_per_policy + other.episodes_per_policy,
            self.n_steps + other.n_steps,
        )


@final
@dataclass(frozen=True, eq=False, slots=True)
class Visits:
    """The answer to Explore. `+` merges two answers to parts of a request.

    Args:
        grams: Sum of phi phi^T at each level, (H, n_blocks, k, k); over all levels, (1, n_blocks, k, k), with pool.
        progress: What these episodes added to the sums of the trigger, (H,), or (1,) with pool.
        n_episodes: Episodes played.
        return_sum: Sum of their returns, in rewards shifted to start at 0.
        return_sum_sq: Sum of the squares of their returns. None where the collector cannot tell.
        start_value_sum: Sum of the policy's own optimistic value at the start states. None if it has none.
        n_steps: Environment steps taken.
        kept: Transitions of the first episodes of the request, as many as it asked to keep.
        n_truncated: Episodes that were cut before their horizon. They are in no sum of returns or start values.
    """

    grams: Array = field(repr=False)
    progress: Array
    n_episodes: int
    return_sum: float
    return_sum_sq: float | None
    start_value_sum: float | None
    n_steps: int
    kept: Transitions | None = field(default=None, repr=False)
    n_truncated: int = 0

    def __add__(self, other: "Visits") -> "Visits":
        kept = [part for part in (self.kept, other.kept) if part is not None]
        return Visits(
            self.grams + other.grams,
            self.progress + other.progress,
            self.n_episodes + other.n_episodes,
            self.return_sum + other.return_sum,
            sum_if_known(self.return_sum_sq, other.return_sum_sq),
            sum_if_known(self.start_value_sum, other.start_value_sum),
            self.n_steps + other.n_steps,
            Transitions.concatenate(kept) if kept else None,
            self.n_truncated + other.n_truncated,
        )


@final
@dataclass(frozen=True, slots=True)
class Returns:
    """The answer to Evaluate. `+` merges two answers to parts of a request.

    Args:
        n_episodes: Episodes played.
        return_sum: Sum of their returns, in rewards shifted to start at 0.
        return_sum_sq: Sum of the squares of their returns. None where the collector cannot tell.
        start_value_sum: Sum of the policy's own optimistic value at the start states. None if it has none.
        n_steps: Environment steps taken.
        n_truncated: Episodes that were cut before their horizon. They are in no sum of returns or start values.

    >>> Returns(2, 1.0, 0.5, None, 6) + Returns(1, 0.5, None, None, 3)
    Returns(n_episodes=3, return_sum=1.5, return_sum_sq=None, start_value_sum=None, n_steps=9, n_truncated=0)
    """

    n_episodes: Positive
    return_sum: float
    return_sum_sq: float | None
    start_value_sum: float | None
    n_steps: int
    n_truncated: int = 0

    @property
    def n_returns(self) -> int:
        """Episodes whose return is known."""
        return self.n_episodes - self.n_truncated

    def __add__(self, other: "Returns") -> "Returns":
        return Returns(
            self.n_episodes + other.n_episodes,
            self.return_sum + other.return_sum,
            sum_if_known(self.return_sum_sq, other.return_sum_sq),
            sum_if_known(self.start_value_sum, other.start_value_sum),
            self.n_steps + other.n_steps,
            self.n_truncated + other.n_truncated,
        )


def sum_if_known(a: float | None, b: float | None) -> float | None:
    """a + b, or None where one of them is not known."""
    return None if a is None or b is None else a + b


Answer = Regression | Visits | Returns


@final
@dataclass(frozen=True, slots=True)
class Shard:
    """A piece of a request. Its index is the number of its first episode within the request's id: never used twice."""

    index: int
    n_episodes: int


class Learner(Protocol):
    """Draws nothing and knows no environment. `ask` is pure: it repeats the same request until `tell`."""

    @property
    def spec(self) -> Spec: ...
    @property
    def q(self) -> LinearQ: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def phases(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def ask(self, max_episodes: int) -> Regress | Explore | None:
        """The next request, of at most `max_episodes` episodes; None when there is nothing left to learn."""
        ...

    def tell(self, request: Asks[A], answer: A) -> None:
        """Take the answer to a request, or to a part of it."""
        ...


class Collector(Protocol):
    """Plays episodes and adds up. Draws only from SeedSequence(seed, spawn_key=(its address, shard.index))."""

    @property
    def seed(self) -> int: ...
    def shards(self, request: Request) -> Iterable[Shard]:
        """The pieces of a request, in order: a pure function of the request."""
        ...

    def play(self, request: Asks[A], shard: Shard, start: Array | None = None) -> A:
        """The answer of one shard; `start` is an Explore's progress before it."""
        ...

    def collect(self, request: Asks[A]) -> A:
        """The answer: shards played one after the other, added in their order."""
        ...
