"""FiniteMDP: a problem given by arrays, whose values are known exactly.

The problem builders of this folder make one, collectors play it, and the theory and the accounting of a run read exact
values from it. A learner never sees it: it is given the `spec` alone.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, BoolArray
from s4q.core.identity_cache import IdentityCache
from s4q.core.linear_q import LinearQ
from s4q.core.messages import FeatureMap, Spec
from s4q.core.policies import Mixture, Policy, UniformPolicy, require_policy
from s4q.core.spec import checked_range
from s4q.core.validation import finite_array, require_count, require_probabilities, require_shape
from s4q.features import TableFeatures
from s4q.problems import planning
from s4q.problems.grid_layout import GridLayout
from s4q.problems.radius import needed_radius

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXACT = 1e-7  # errors below this share of the largest target are rounding
RewardNoise = Literal["bernoulli", "none"]


@final
@dataclass(frozen=True, slots=True)
class Facts:
    """How hard a problem is: exact numbers, in the user's units. `FiniteMDP.facts` makes it.

    Attributes:
        v_star: The best expected return of an episode.
        v_uniform: The expected return of the uniform policy.
        chance: Probability that an episode of the uniform policy takes the best-paid reachable pair (s, a).
    """

    v_star: float
    v_uniform: float
    chance: float


@final
class FiniteMDP:
    """A finite-horizon MDP with finitely many states and actions.

    Args:
        transitions: Probabilities (H, S, A, S), or (S, A, S) together with `horizon`.
        rewards: Mean rewards (H, S, A), or (S, A) for the same at every level.
        start: Probabilities (S,) of the first state.
        features: Array (H, S, A, d) or (S, A, d), or a feature map over the states 0..S-1. None (default): one-hot
            features of pairs (s, a).
        horizon: Steps of an episode. Needed only where transitions have no axis for the level.
        reward_range: Lowest and highest reward of a step, (0, 1) by default. All rewards must lie in it.
        value_bound: Bound on the return from any step on, one number or one per level. None (default): the highest
            reward at every step left.
        reward_noise: "bernoulli" (default) pays the highest or the lowest reward, with the given mean; "none" pays
            the mean.
        radius: Radius of the parameter ball, one number or one per level. None (default): computed from the tables
            where the features are exact, else sqrt(d) times the largest regression target. A radius that is smaller
            than exact features need is refused.
        terminal: Mask (S,) of states that end an episode; rewards are 0 from then on. Such a state must be absorbing
            with reward 0, have features 0 (one-hot features do) and not be a start state. None (default): no state.
        well_specified: True if every regression target is linear in the features; this is checked against the tables.
            None (default): True for one-hot features, else False.
        arrival_rewards: Rewards (H, S, A, S) or (S, A, S), where the next state decides the reward; `rewards` must be
            their mean. None (default): the next state does not matter.
        layout: Where the states lie on a grid, for `plot`. None (default): it is no grid.

    >>> mdp = FiniteMDP(np.ones((1, 2, 1)), [[0.2, 0.7]], [1.0], horizon=3)
    >>> mdp
    FiniteMDP(H=3, S=1, A=2, d=2, v_star=2.1)
    """

    def __init__(
        self,
        transitions: ArrayLike,
        rewards: ArrayLike,
        start: ArrayLike,
        features: ArrayLike | FeatureMap | None = None,
        horizon: int | None = None,
        *,
        reward_range: tuple[float, float] = (0.0, 1.0),
        value_bound: ArrayLike | None = None,
        reward_noise: RewardNoise = "bernoulli",
        radius: ArrayLike | None = None,
        terminal: ArrayLike | None = None,
        well_specified: bool | None = None,
        arrival_rewards: ArrayLike | None = None,
        layout: GridLayout | None = None,
    ) -> None:
        self.transitions = _checked_transitions(transitions, horizon)
        self.horizon, self.n_states, self.n_actions = self.transitions.shape[:3]
        self.layout = self._checked_layout(layout)
        self.start = finite_array("start", start)
        require_shape("start", self.start, (self.n_states,), "(S,)")
        require_probabilities("start", self.start)
        self.terminal = self._terminal_mask(terminal)
        may_end = bool(self.terminal.any())
        self.rewards = self._checked_rewards(rewards, *checked_range(reward_range, may_end))
        self._check_terminal()
        if reward_noise not in ("bernoulli", "none"):
            raise ValueError(f'reward_noise must be "bernoulli" or "none"; got {reward_noise!r}')
        self.reward_noise: RewardNoise = reward_noise
        self.arrival_rewards = self._checked_arrivals(arrival_rewards)
        self.same_dynamics = _same_at_every_level(self.transitions, transitions)  # at every level
        self.same_rewards = _same_at_every_level(self.rewards, rewards) and (
            self.arrival_rewards is None
            or arrival_rewards is None
            or _same_at_every_level(self.arrival_rewards, arrival_rewards)
        )
        self.features = self._checked_features(features)
        self.spec = Spec.of(
            self.features,
            horizon=self.horizon,
            reward_range=reward_range,
            value_bound=value_bound,
            radius=radius,
            stationary=self.same_dynamics and self.same_rewards and self.features.stationary,
            well_specified=features is None if well_specified is None else well_specified,
            may_end=may_end,
        )
        self._check_value_bound()
        if self.spec.well_specified:
            self.spec = self._with_needed_radius()
        self._tables: IdentityCache[Policy, Array] = IdentityCache(
            self._table_of, size=max(8, 2**26 // self.rewards.size // 8)
        )

    @property
    def dim(self) -> int:
        """d, the length of the features written out."""
        return self.spec.dim

    @cached_property
    def q_star(self) -> Array:
        """Q*, (H, S, A), in the user's units."""
        q = planning.optimal_values(self.transitions, self.rewards)
        q.setflags(write=False)
        return q

    @cached_property
    def v_star(self) -> float:
        """The best expected return of an episode."""
        return float(self.start @ self.q_star[0].max(axis=-1))

    @cached_property
    def reachable(self) -> BoolArray:
        """Mask (H, S) of the states that some policy visits at each level; terminal states are left out."""
        return np.asarray(planning.reachable(self.transitions, self.start) & ~self.terminal)

    def __repr__(self) -> str:
        sizes = f"H={self.horizon}, S={self.n_states}, A={self.n_actions}, d={self.dim}"
        return f"FiniteMDP({sizes}, v_star={self.v_star:.6g})"

    def policy_table(self, policy: Policy) -> Array:
        """The action probabilities of a policy at every state, (H, S, A). Tables of recent policies are cached.

        Args:
            policy: Any policy for this problem; not a Mixture.
        """
        return self._tables(policy)

    def _table_of(self, policy: Policy) -> Array:
        states = np.arange(self.n_states)
        levels = range(self.horizon)
        require_policy("policy", policy)
        at_once = getattr(policy, "probabilities_at_every_level", None)  # some policies know all levels at once
        try:
            if at_once is not None:
                rows = at_once(self.features.vectors, self.features.blocks)
            else:
                rows = [np.asarray(policy.probabilities(h, states, self.features.level(h))) for h in levels]
        except IndexError as error:
            raise ValueError(
                f"policy does not fit {self} ({error}); pass a policy for a problem of this size"
            ) from None
        for row in rows:
            require_shape("policy.probabilities(h, states, phi)", row, self.rewards.shape[1:], "(n, n_actions)")
        table = np.stack(rows)
        require_probabilities("policy.probabilities", table)
        return table

    def value(self, policy: Policy | Mixture) -> float:
        """The exact expected return of an episode, in the user's units.

        Args:
            policy: A policy, or a Mixture of which one policy is drawn per episode.
        """
        if isinstance(policy, Mixture):
            values = [self.value(one) for one in policy.policies]
            return float(policy.weights @ np.array(values))
        table = self.policy_table(policy)
        q = planning.policy_values(self.transitions, self.rewards, table)
        return float(self.start @ (table[0] * q[0]).sum(axis=-1))

    def occupancies(self, policy: Policy | Mixture) -> Array:
        """The probability of each pair (s, a) at each level, (H, S, A).

        Args:
            policy: A policy, or a Mixture of which one policy is drawn per episode.
        """
        if isinstance(policy, Mixture):
            parts = [
                weight * self.occupancies(one) for one, weight in zip(policy.policies, policy.weights, strict=True)
            ]
            return np.asarray(np.sum(parts, axis=0))
        return planning.occupancies(self.transitions, self.start, self.policy_table(policy))

    def q_values(self, q: LinearQ) -> Array:
        """A learned Q at every pair, (H, S, A), in the user's units, to compare with `q_star`.

        Args:
            q: The Q of a learner or of a Run.
        """
        levels = range(self.horizon)
        table = np.stack([self.spec.to_user_units(h, q.q_values(h, self.features.level(h))) for h in levels])
        table[:, self.terminal] = 0.0
        return table

    def facts(self) -> Facts:
        """V*, the value of the uniform policy, and the probability that it reaches the best-paid pair."""
        uniform = UniformPolicy(self.n_actions)
        pays = np.where(self.reachable[:, :, None], self.rewards, -np.inf)
        goal = pays >= pays.max() - 1e-12
        missed = np.where(goal[..., None], 0.0, self.transitions)  # an episode that reached the goal is counted once
        missing = planning.occupancies(missed, self.start, self.policy_table(uniform))
        return Facts(self.v_star, self.value(uniform), float(missing[goal].sum()))

    def plot(self, policy: Policy | None = None, level: int | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw what a policy does and is worth in every cell of a grid; needs `pip install "s4q[report]"`.

        Args:
            policy: Any policy for this problem. None (default): an optimal one.
            level: The level to show. None (default): in each cell the level at which the policy is there most often.
            ax: The Axes to draw on. None (default): new ones; `ax.figure.savefig(path)` writes them.
        """
        from s4q.report.grid_plots import plot_policy

        return plot_policy(self, policy, level, ax)

    def _checked_layout(self, layout: GridLayout | None) -> GridLayout | None:
        if layout is None:
            return None
        if not isinstance(layout, GridLayout) or len(layout.cells) != self.n_states:
            raise ValueError(f"layout must be a GridLayout with a cell for each of {self.n_states} states, or None")
        if layout.row_is_level and layout.n_rows != self.horizon:
            raise ValueError(f"layout must have a row for each of {self.horizon} levels; got {layout.n_rows} rows")
        return layout

    def _checked_rewards(self, rewards: ArrayLike, low: float, high: float) -> Array:
        array = finite_array("rewards", rewards)
        if array.ndim == 2:
            array = np.broadcast_to(array, (self.horizon, *array.shape))
        require_shape("rewards", array, self.transitions.shape[:3], "(H, S, A), or (S, A),")
        outside = (array < low - 1e-12) | (array > high + 1e-12)
        outside[:, self.terminal] = False  # a terminal state pays nothing, whatever the range
        if outside.any():
            h, s, a = (int(i) for i in np.argwhere(outside)[0])
            where = "above" if array[h, s, a] > high else "below"
            raise ValueError(
                f"rewards[{h}, {s}, {a}] is {array[h, s, a]}, {where} reward_range ({low}, {high}); pass "
                "reward_range=(lowest, highest) that holds all rewards"
            )
        return array

    def _terminal_mask(self, terminal: ArrayLike | None) -> BoolArray:
        if terminal is None:
            return np.zeros(self.n_states, dtype=np.bool_)
        mask = np.array(terminal)
        require_shape("terminal", mask, (self.n_states,), "(S,)")
        if mask.dtype != np.bool_:
            raise ValueError(f"terminal must be an array of True and False; got dtype {mask.dtype}")
        return mask

    def _check_terminal(self) -> None:
        for state in np.flatnonzero(self.terminal):
            if np.any(self.transitions[:, state, :, state] < 1) or np.any(self.rewards[:, state] != 0):
                raise ValueError(f"terminal state {state} must be absorbing with reward 0 at every level")
            if self.start[state] > 0:
                raise ValueError(
                    f"start puts {self.start[state]} on terminal state {state}; an episode cannot be over at once"
                )

    def _checked_arrivals(self, arrivals: ArrayLike | None) -> Array | None:
        if arrivals is None:
            return None
        array = finite_array("arrival_rewards", arrivals)
        if array.ndim == 3:
            array = np.broadcast_to(array, (self.horizon, *array.shape))
        require_shape("arrival_rewards", array, self.transitions.shape, "(H, S, A, S), or (S, A, S),")
        off = np.abs(np.einsum("hsat,hsat->hsa", self.transitions, array) - self.rewards).max()
        if off > 1e-8:
            raise ValueError(f"rewards must be the mean of arrival_rewards over next states; they differ by {off:.3g}")
        if self.reward_noise != "none":
            raise ValueError(f'arrival_rewards need reward_noise="none"; got reward_noise={self.reward_noise!r}')
        return array

    def _checked_features(self, features: ArrayLike | FeatureMap | None) -> TableFeatures:
        if features is None:
            return TableFeatures.one_hot(self.horizon, self.n_states, self.n_actions, self.terminal)
        if callable(features):
            table = TableFeatures.tabulated(features, self.horizon, self.n_states)
        else:
            table = TableFeatures.dense(features, self.horizon)
        require_shape("features", table.vectors, (*self.rewards.shape, None), "(H, S, A, d)")
        if np.any(table.vectors[:, self.terminal]):
            raise ValueError("features must be 0 at terminal states: nothing is learned there")
        return table

    def _check_value_bound(self) -> None:
        for h in range(self.horizon):
            best = self.spec.to_user_units(h, np.array(self.spec.value_bound[h]))
            true = self.q_star[h][self.reachable[h]].max(initial=-np.inf)
            if true > best + 1e-9:
                raise ValueError(
                    f"value_bound is {best:.6g} at level {h}, but Q* reaches {true:.6g} there; declare at least that"
                )

    def _with_needed_radius(self) -> Spec:
        """The Spec with the radius that exact features need, or with a declared one that is large enough."""
        spec = self.spec
        needed = needed_radius(self.transitions, self.rewards, self.terminal, self.reachable, self.features, spec)
        targets = np.array([spec.largest_target(h) for h in range(self.horizon)])
        for h, error in enumerate(needed.error.tolist()):
            if error > EXACT * max(targets[h], spec.value_bound[h]):
                raise ValueError(
                    f"well_specified=True says that the features are exact, but at level {h} a regression target is "
                    f"{error:.3g} away from every linear function of them; declare well_specified=False"
                )
        if spec.radius_from == "declared":
            for h, (declared, attained) in enumerate(zip(spec.radius, needed.attained.tolist(), strict=True)):
                if declared < attained * (1 - 1e-9):
                    raise ValueError(
                        f"radius is {declared:.6g} at level {h}, but the parameter of a target reaches norm "
                        f"{attained:.6g} there; declare at least that, or leave radius out to have it computed"
                    )
            return spec
        # Never smaller than the largest target along the longest feature needs, because a learner does not know in
        # advance that a level pays little.
        longest = np.linalg.norm(self.features.vectors, axis=-1).max(axis=(1, 2))
        least = targets / np.where(longest > 0, longest, 1.0)
        least = np.where(least > 0, least, 1.0)  # one constant reward
        return replace(
            spec,
            radius=tuple(np.maximum(needed.whole, least).tolist()),
            block_radius=tuple(np.maximum(needed.block, least).tolist()),
            radius_from="computed",
        )


def _checked_transitions(transitions: ArrayLike, horizon: int | None) -> Array:
    array = finite_array("transitions", transitions)
    if array.ndim == 3:
        if horizon is None:
            raise ValueError("horizon is needed when transitions have shape (S, A, S); pass horizon=...")
        require_count("horizon", horizon, "the number of steps of an episode")
        require_probabilities("transitions", array)
        array = np.broadcast_to(array, (horizon, *array.shape))
    else:
        require_shape("transitions", array, (horizon, None, None, None), "(H, S, A, S), or (S, A, S) with `horizon`,")
        require_probabilities("transitions", array)
    if array.shape[1] != array.shape[3] or 0 in array.shape:
        raise ValueError(f"transitions must have as many next states as states, and no empty axis; got {array.shape}")
    return array


def _same_at_every_level(array: Array, given: ArrayLike) -> bool:
    """True if the rows of the first axis are equal: they are where `given` had no axis for the level."""
    return np.ndim(given) < array.ndim or bool(np.all(array == array[:1]))
