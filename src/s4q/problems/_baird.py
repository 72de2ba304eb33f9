"""Baird's star: a problem whose values are linear in the features, and on which linear Q-learning diverges.

Baird (1995): Residual algorithms: reinforcement learning with function approximation; Sutton, Barto (2018):
Reinforcement learning, section 11.2, for the numbers. The discount is written as a chance to end after every step, so
that learners for a finite horizon see the same problem.
"""

import numpy as np

from s4q.core.validation import require_count, require_share
from s4q.problems.finite_mdp import FiniteMDP

_UPPER = 6  # upper states, each with an action that leads to it
_LOWER, _END = 6, 7  # the lower state, and the one that an ended episode is in


def baird(horizon: int = 20, *, discount: float = 0.99, reward: float = 0.5) -> FiniteMDP:
    """Six upper states and a lower one; action i < 6 leads to upper state i, action 6 to the lower state.

    Played uniformly, each of the seven states comes next with the same chance, as under Baird's behaviour policy. The
    features of action 6 are his, divided by sqrt(5) so that they have norm 1: (2 e_s + e_8) / sqrt(5) in an upper state
    and (e_7 + 2 e_8) / sqrt(5) in the lower one. All other actions of a state share one feature of its own. An episode
    starts anywhere, and ends after each step with probability 1 - discount. Every action of every state pays the same
    on average, so that all policies are equally good, and Q* is linear in the features at every level.

    Linear Q-learning with one parameter for all levels (`baselines.QLearning(..., shared=True)`) diverges under a
    uniform policy: the lower state, on which all others bootstrap, shares its largest weight with them and is corrected
    too rarely. A target that stands still for a while (`baselines.QRex`) slows that down. One parameter a level ends
    it. S3Q has both.

    Args:
        horizon: Steps of an episode.
        discount: Chance to go on after a step, in (0, 1).
        reward: Mean reward of a step, in [0, 1]: a coin decides between 0 and 1. Baird pays nothing and begins with
            unequal weights; here the noise of the rewards makes them unequal.

    >>> baird()
    FiniteMDP(H=20, S=8, A=7, d=15, v_star=9.10465)
    >>> f"{baird(horizon=2, discount=0.9).v_star:.2f}"
    '0.95'
    """
    require_count("horizon", horizon, "the number of steps of an episode")
    require_share("discount", discount, "the chance to go on after a step", zero=False)
    if discount == 1:
        raise ValueError(f"discount is the chance to go on after a step, so it must be below 1; got {discount}")
    require_share("reward", reward, "the mean reward of a step")
    n_states, n_actions = _END + 1, _UPPER + 1
    transitions = np.zeros((n_states, n_actions, n_states))
    transitions[:_END, np.arange(n_actions), np.arange(n_actions)] = discount  # action i leads to state i
    transitions[:_END, :, _END] = 1.0 - discount
    transitions[_END, :, _END] = 1.0
    rewards = np.full((n_states, n_actions), reward)
    rewards[_END] = 0.0
    features = np.zeros((n_states, n_actions, 15))
    for s in range(_UPPER):
        features[s, _LOWER, [s, 7]] = 2.0, 1.0
    features[_LOWER, _LOWER, [6, 7]] = 1.0, 2.0
    features[:, _LOWER] /= np.sqrt(5.0)
    for s in range(_END):
        features[s, :_UPPER, 8 + s] = 1.0
    return FiniteMDP(
        transitions,
        rewards,
        start=np.append(np.full(_END, 1.0 / _END), 0.0),
        features=features,
        horizon=horizon,
        terminal=np.arange(n_states) == _END,
    )
