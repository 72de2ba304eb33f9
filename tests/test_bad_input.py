"""Bad input: a ValueError that names the argument, the value and the cure."""

from collections.abc import Callable

import numpy as np
import pytest
from small_problems import random_mdp

import s4q
from s4q import FiniteMDP, LinearQ, Mixture, Spec, UniformPolicy
from s4q.collectors import EpisodeCollector
from s4q.core.validation import require_failure_probability
from s4q.features import TableFeatures

MDP = random_mdp(3, 2, 2, 2, seed=0)
STAY = np.broadcast_to(np.eye(2)[:, None, :], (2, 2, 2))
ZERO = np.zeros((2, 2))
START = [1.0, 0.0]


def mdp(**changes: object) -> FiniteMDP:
    arguments = {"transitions": STAY, "rewards": ZERO, "start": START, "horizon": 2} | changes
    return FiniteMDP(**arguments)  # type: ignore[arg-type]


def with_entry(array: np.ndarray, where: tuple[int, ...], value: float) -> np.ndarray:
    copy = np.array(array, dtype=float)
    copy[where] = value
    return copy


BAD: list[tuple[str, Callable[[], object], str]] = [
    ("transitions shape", lambda: mdp(transitions=np.ones((2, 2))), r"transitions must have shape .*got \(2, 2\)"),
    (
        "not square",
        lambda: mdp(transitions=np.full((2, 2, 3), 1 / 3)),
        r"as many next states as states.*\(2, 2, 2, 3\)",
    ),
    ("no horizon", lambda: mdp(horizon=None), r"horizon is needed .*pass horizon="),
    ("horizon zero", lambda: mdp(horizon=0), r"horizon is .* at least 1; got 0"),
    (
        "horizon mismatch",
        lambda: mdp(transitions=np.stack([STAY] * 3)),
        r"transitions must have shape .*got \(3, 2, 2, 2\)",
    ),
    ("row sum", lambda: mdp(transitions=with_entry(STAY, (1, 0, 1), 0.5)), r"transitions\[1, 0\] sums to 0.5; divide"),
    ("negative probability", lambda: mdp(start=[1.5, -0.5]), r"start\[1\] is -0.5; none may be negative"),
    ("start sum", lambda: mdp(start=[0.5, 0.4]), r"start sums to 0.9"),
    ("start shape", lambda: mdp(start=[1.0]), r"start must have shape \(S,\) = \(2,\); got \(1,\)"),
    ("nan transitions", lambda: mdp(transitions=with_entry(STAY, (0, 0, 0), np.nan)), r"transitions\[0, 0, 0\] is nan"),
    ("nan rewards", lambda: mdp(rewards=with_entry(ZERO, (1, 1), np.nan)), r"rewards\[1, 1\] is nan"),
    ("rewards shape", lambda: mdp(rewards=np.zeros(2)), r"rewards must have shape .*got \(2,\)"),
    ("words", lambda: mdp(rewards=[["a", "b"], ["c", "d"]]), r"rewards must be an array of numbers"),
    (
        "reward above",
        lambda: mdp(rewards=with_entry(ZERO, (0, 1), 2.0)),
        r"rewards\[0, 0, 1\] is 2.0, above reward_range",
    ),
    (
        "reward below",
        lambda: mdp(rewards=with_entry(ZERO, (0, 1), -1.0)),
        r"rewards\[0, 0, 1\] is -1.0, below reward_range",
    ),
    (
        "reward range",
        lambda: mdp(reward_range=(0.0, -1.0)),
        r"reward_range must be .*lowest <= highest; got \(0.0, -1.0\)",
    ),
    ("reward range of one", lambda: mdp(reward_range=1.0), r"reward_range must be \(lowest, highest\).*; got 1.0"),
    ("reward range nan", lambda: mdp(reward_range=(0.0, np.nan)), r"reward_range\[1\] is nan; remove"),
    ("noise", lambda: mdp(reward_noise="gaussian"), r"reward_noise must be .*got 'gaussian'"),
    (
        "norm",
        lambda: mdp(features=np.full((2, 2, 2), 0.9)),
        r"norm at most 1.*level 0, state 0, action 0 .*1.27279.*divide",
    ),
    (
        "nan features",
        lambda: mdp(features=with_entry(np.zeros((2, 2, 2)), (1, 0, 0), np.inf)),
        r"features\[1, 0, 0\] is inf",
    ),
    ("features shape", lambda: mdp(features=np.zeros((3, 2, 2))), r"features must have shape .*got \(2, 3, 2, 2\)"),
    ("radius", lambda: mdp(radius=[1.0, -1.0]), r"radius .*positive and finite; got -1.0"),
    ("radius shape", lambda: mdp(radius=[1.0]), r"radius must be one number or one per level, \(2,\)"),
    ("bound shape", lambda: mdp(value_bound=[1.0]), r"value_bound must be one number or one per level"),
    ("bound too low", lambda: mdp(value_bound=-1.0), r"value_bound must exceed .*got -1.0"),
    (
        "terminal moves",
        lambda: mdp(transitions=STAY[:, :, ::-1], terminal=[False, True]),
        r"terminal state 1 must be absorbing",
    ),
    ("terminal dtype", lambda: mdp(terminal=[0, 1]), r"terminal must be an array of True and False"),
    ("terminal start", lambda: mdp(terminal=[True, False]), r"start puts 1.0 on terminal state 0"),
    (
        "terminal features",
        lambda: mdp(features=np.full((2, 2, 1), 0.5), terminal=[False, True]),
        r"features must be 0 at terminal states",
    ),
    (
        "terminal range",
        lambda: mdp(rewards=[[0.5, 0.5], [0, 0]], reward_range=(0.2, 1.0), terminal=[False, True]),
        r"the lowest reward must be at most 0.*pass reward_range=\(0, 1\)",
    ),
    ("weights sum", lambda: Mixture([UniformPolicy(2)] * 2, [0.5, 0.6]), r"weights sums to 1.1; divide"),
    ("weights shape", lambda: Mixture([UniformPolicy(2)], [0.5, 0.5]), r"weights must have shape"),
    ("no policies", lambda: Mixture([], []), r"policies must hold at least one policy"),
    ("no actions", lambda: UniformPolicy(0), r"n_actions .*got 0"),
    ("theta shape", lambda: LinearQ.from_arrays(np.zeros((2, 2))), r"theta must have shape \(H, n_blocks, k\)"),
    ("theta nan", lambda: LinearQ.from_arrays(np.full((1, 1, 1), np.nan)), r"theta\[0, 0, 0\] is nan"),
    ("half a bonus", lambda: LinearQ.from_arrays(np.zeros((1, 1, 1)), width=[1.0]), r"give both, or neither"),
    (
        "width sign",
        lambda: LinearQ.from_arrays(np.zeros((1, 1, 1)), np.ones((1, 1, 1, 1)), [-1.0]),
        r"width .*not be negative; got -1.0",
    ),
    ("clip order", lambda: LinearQ.from_arrays(np.zeros((1, 1, 1)), clip=[[1.0, 0.0]]), r"clip holds .*lower <= upper"),
    ("clip nan", lambda: LinearQ.from_arrays(np.zeros((1, 1, 1)), clip=[[np.nan, 1.0]]), r"clip holds"),
    ("ridge", lambda: s4q.S3Q(MDP, UniformPolicy(2), ridge=0.0), r"ridge .*positive and finite; got 0.0"),
    ("epoch size", lambda: s4q.S3Q(MDP, UniformPolicy(2), epoch_size=0), r"epoch_size .*got 0"),
    ("problem", lambda: s4q.S3Q("chain", UniformPolicy(2)), r"problem must be a Spec .*got str"),  # type: ignore[arg-type]
    ("budget", lambda: s4q.S3Q(MDP, UniformPolicy(2)).ask(0), r"max_episodes .*got 0"),
    (
        "zero episodes",
        lambda: s4q.run(s4q.S3Q(MDP, UniformPolicy(2)), EpisodeCollector(MDP), episodes=0),
        r"episodes is .* at least 1; got 0",
    ),
    (
        "float episodes",
        lambda: s4q.run(s4q.S3Q(MDP, UniformPolicy(2)), EpisodeCollector(MDP), episodes=1e5),  # type: ignore[arg-type]
        r"episodes is .*got 100000.0",
    ),
    ("seed", lambda: EpisodeCollector(MDP, seed=-1), r"seed .*got -1"),
    ("collector mdp", lambda: EpisodeCollector("chain"), r"mdp must be a FiniteMDP; got str"),  # type: ignore[arg-type]
    ("request", lambda: EpisodeCollector(MDP).play("x", s4q.core.messages.Shard(0, 1)), r"request must be a Regress"),
    ("dim", lambda: s4q.StreamingLeastSquares(0), r"dim .*got 0"),
    ("stream ridge", lambda: s4q.StreamingLeastSquares(2, ridge=-1.0), r"ridge .*got -1.0"),
    ("ball radius", lambda: s4q.project_to_ball([1.0], [[1.0]], 1.0, 0.0), r"radius .*got 0.0"),
    ("ball ridge", lambda: s4q.project_to_ball([1.0], [[1.0]], 0.0, 1.0), r"ridge .*got 0.0"),
    ("ball gram", lambda: s4q.project_to_ball([1.0], [[1.0, 0.0]], 1.0, 1.0), r"gram must have shape"),
    (
        "balls",
        lambda: s4q.project_to_ball([[1.0]], [[[1.0]]], 1.0, [1.0, 1.0]),
        r"radius must be one number or one per block",
    ),
    (
        "wrong policy",
        lambda: MDP.value(UniformPolicy(3)),
        r"policy.probabilities\(h, states, phi\) must have shape \(n, n_actions\) = \(3, 2\); got \(3, 3\)",
    ),
    (
        "spec range",
        lambda: Spec.of(TableFeatures.one_hot(2, 2, 2), horizon=2, reward_range=(np.nan, 1.0)),
        r"reward_range\[0\] is nan",
    ),
    ("delta 0", lambda: require_failure_probability("delta", 0.0), r"delta .*in \(0, 1\); got 0.0"),
    ("delta 1", lambda: require_failure_probability("delta", 1.0), r"delta .*in \(0, 1\); got 1.0"),
    ("chain", lambda: s4q.problems.chain(1), r"n_states .*at least 2; got 1"),
    ("sea", lambda: s4q.problems.deep_sea(1), r"size .*at least 2; got 1"),
    ("lock", lambda: s4q.problems.combination_lock(1), r"n_actions .*at least 2; got 1"),
    ("copies", lambda: s4q.problems.bellman_closed(n_copies=1), r"n_copies .*at least 2; got 1"),
]


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_refused_with_advice(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


class BrokenPolicy:
    def probabilities(self, h: int, states: np.ndarray, phi: s4q.Phi) -> np.ndarray:
        return np.full((len(states), 2), 0.4)


def test_a_policy_that_does_not_sum_to_one_is_named() -> None:
    learner = s4q.S3Q(MDP, BrokenPolicy())
    with pytest.raises(ValueError, match=r"policy.probabilities\[0, 0\] sums to 0.8"):
        s4q.run(learner, EpisodeCollector(MDP), episodes=10)
    assert learner.n_episodes == 0
