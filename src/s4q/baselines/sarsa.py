"""SARSA(lambda) with linear features.

Rummery, Niranjan (1994): On-line Q-learning using connectionist systems; Sutton, Barto (2018): Reinforcement learning,
section 12.7. In the episodic form, from the last step of an episode to the first:

    td = r + phi(s', a') . theta_{h+1} - phi(s, a) . theta_h,   with a' the action that was taken
    sum = td + lambda * sum                                      # all later errors, discounted by lambda
    theta_h += rate * sum * phi(s, a)
    the next episode plays the greedy policy of theta, with a uniform action with probability epsilon

All errors of an episode are those of the parameter before it. With one parameter a level that is exactly what
eligibility traces give along the way: when level h is reached, nothing that its error needs has changed yet. With
`shared=True` it is the offline form.
"""

from typing import final

from s4q.baselines.first_order import FirstOrderLearner, Step, next_values
from s4q.core.messages import Spec, Transitions, Visits
from s4q.core.spec import HasSpec
from s4q.core.validation import require_share


@final
class Sarsa(FirstOrderLearner):
    """SARSA(lambda); ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        epsilon: Probability of a uniform action. 0.1 by default; 0 goes with `optimistic=True`.
        trace: lambda, in [0, 1]. 0.9 by default; 0 is one-step SARSA, 1 is Monte Carlo.
        step_size: The first step size. 0.1 by default.
        decay: The n-th step in a block has step_size / n^decay. 0 by default.
        optimistic: True starts every entry of the parameter at the value bound. False by default.
        shared: True for one parameter for all levels. False by default.
        discount: Factor of the next value. 1 by default; less only with shared weights.

    >>> import s4q
    >>> mdp = s4q.problems.chain(4, 4)
    >>> run = s4q.run(Sarsa(mdp, optimistic=True), s4q.collectors.EpisodeCollector(mdp, seed=0), episodes=400)
    >>> run.episodes, bool(run.gap < 0.01)
    (400, True)
    """

    def __init__(
        self,
        problem: Spec | HasSpec,
        epsilon: float = 0.1,
        *,
        trace: float = 0.9,
        step_size: float = 0.1,
        decay: float = 0.0,
        optimistic: bool = False,
        shared: bool = False,
        discount: float = 1.0,
    ) -> None:
        require_share("trace", trace, "lambda")
        self.trace = float(trace)
        super().__init__(
            problem,
            epsilon,
            step_size=step_size,
            decay=decay,
            optimistic=optimistic,
            shared=shared,
            discount=discount,
        )

    def _take(self, steps: Transitions, answer: Visits) -> None:
        del answer
        episode = list(self._in_order(steps))
        values = [float(self.theta[step.row, step.block] @ step.phi) for step in episode]
        after = [*values[1:], self._after_the_last(episode[-1])]
        errors = 0.0
        for step, value, following in reversed(list(zip(episode, values, after, strict=True))):
            td_error = step.reward + self.discount * following - value
            errors = td_error + self.discount * self.trace * errors
            self.theta[step.row, step.block] += self._next_rate(step) * errors * step.phi

    def _after_the_last(self, step: Step) -> float:
        """No action was taken after the last step: its expected value under the policy takes the place."""
        if step.next_row is None:
            return step.ended_value
        values = next_values(self.theta, step)
        return float((1 - self.epsilon) * values.max() + self.epsilon * values.mean())
