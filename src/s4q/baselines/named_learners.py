"""Learners by name, each with its settings, for comparisons: S4Q, its ablations, and every baseline untuned and tuned.

"Untuned" is what the paper of the algorithm, or common practice, would have a newcomer take. "Tuned" is one better
setting for all problems; `python -m benchmarks.baseline_settings` compares it with others. Any setting can be replaced.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

from s4q.baselines.fitted_q import FittedQ
from s4q.baselines.lsvi_ucb import LSVIUCB, paper_beta
from s4q.baselines.no_replay_s4q import NoReplayS4Q
from s4q.baselines.psrl import PSRL
from s4q.baselines.q_learning import QLearning
from s4q.baselines.q_rex import QRex
from s4q.baselines.replay_q import ReplayQ
from s4q.baselines.rlsvi import RLSVI
from s4q.baselines.sarsa import Sarsa
from s4q.baselines.ucb_q import UCBQ, paper_c
from s4q.baselines.ucbvi import UCBVI
from s4q.core.messages import Learner, Spec
from s4q.core.spec import HasSpec, spec_of
from s4q.core.validation import did_you_mean
from s4q.learners.s4q import S4Q
from s4q.learners.shelf import least_bytes

Kind = Literal["ours", "ablation", "untuned", "tuned"]


@final
@dataclass(frozen=True, kw_only=True)
class NamedLearner:
    """A class of learners with settings.

    Args:
        make: The class.
        kind: "ours", "ablation", "untuned" or "tuned".
        about: What it is, in a few words.
        settings: Keyword arguments of the class.
        of_run: Settings that depend on the problem and the number of episodes, by name.
    """

    make: Callable[..., Learner]
    kind: Kind
    about: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    of_run: Mapping[str, Callable[[Spec, int], Any]] = field(default_factory=dict)

    def build(self, problem: Spec | HasSpec, seed: int, episodes: int, replaced: Mapping[str, Any]) -> Learner:
        """The learner for a problem.

        Args:
            problem: A Spec, or anything with `.spec`.
            seed: Passed on where the learner draws.
            episodes: Episodes of the whole run.
            replaced: Settings that take the place of its own.
        """
        known = inspect.signature(self.make).parameters
        for name in replaced:
            if name not in known or name == "problem":
                named = ", ".join(one for one in known if one != "problem")
                raise ValueError(f"{self.make.__name__} has no setting {name!r}; it has {named}")
        computed = {name: rule(spec_of(problem), episodes) for name, rule in self.of_run.items()}
        drawn = {"seed": seed} if "seed" in known else {}
        return self.make(problem, **{**drawn, **self.settings, **computed, **replaced})


def _stationary(spec: Spec, episodes: int) -> bool:
    del episodes
    return spec.stationary


_POOL = {"pool": _stationary}


def _small_sketch(spec: Spec, episodes: int) -> int:
    """Bytes of about a step for each feature and level, so that steps are dropped on small problems too."""
    del episodes
    return spec.dim * least_bytes(spec, spec.stationary)


LEARNERS: dict[str, NamedLearner] = {
    "s4q": NamedLearner(make=S4Q, kind="ours", about="S4Q, preset practical: the default learner"),
    "s4q_realisable": NamedLearner(
        make=S4Q, kind="ours", about="S4Q, preset realisable: policy replay", settings={"preset": "realisable"}
    ),
    "s4q_policies": NamedLearner(
        make=S4Q, kind="ours", about="S4Q, practical constants, policy replay", settings={"memory": "policies"}
    ),
    "s4q_doubling": NamedLearner(
        make=S4Q,
        kind="ablation",
        about="s4q_realisable with the paper's doubling epochs, and c_replay 4",
        settings={"preset": "realisable", "epochs": "doubling", "c_replay": 4.0},
    ),
    "experience_replay": NamedLearner(
        make=S4Q,
        kind="ablation",
        about="s4q_policies with every step kept instead; as s4q until its 64 MiB are full",
        settings={"memory": "all"},
    ),
    "sketch": NamedLearner(
        make=S4Q,
        kind="ablation",
        about="s4q_policies with a sample of steps instead, about a step for each feature and level",
        settings={"memory": "sketch"},
        of_run={"memory_bytes": _small_sketch},
    ),
    "bonus_off": NamedLearner(make=S4Q, kind="ablation", about="s4q without a bonus", settings={"bonus_width": 0.0}),
    "no_replay": NamedLearner(
        make=NoReplayS4Q,
        kind="ablation",
        about="experience_replay whose targets are never made again",
        settings={"preset": "practical"},
    ),
    "no_replay_discounted": NamedLearner(
        make=NoReplayS4Q,
        kind="ablation",
        about="no_replay with old sums halved a phase",
        settings={"preset": "practical", "keep": 0.5},
    ),
    "lsvi_ucb_paper": NamedLearner(
        make=LSVIUCB,
        kind="untuned",
        about="LSVI-UCB with the beta of its theorem, rare switching",
        settings={"switch": "determinant"},
        of_run={"beta": paper_beta},
    ),
    "lsvi_ucb": NamedLearner(
        make=LSVIUCB, kind="untuned", about="LSVI-UCB, beta 1, rare switching", settings={"switch": "determinant"}
    ),
    "lsvi_ucb_tuned": NamedLearner(
        make=LSVIUCB,
        kind="tuned",
        about="LSVI-UCB, beta 0.1, rare switching, levels pooled",
        settings={"beta": 0.1, "switch": "determinant"},
        of_run=_POOL,
    ),
    "rlsvi": NamedLearner(make=RLSVI, kind="untuned", about="RLSVI, sigma 1"),
    "rlsvi_tuned": NamedLearner(
        make=RLSVI, kind="tuned", about="RLSVI, sigma 0.1, levels pooled", settings={"sigma": 0.1}, of_run=_POOL
    ),
    "fitted_q": NamedLearner(make=FittedQ, kind="untuned", about="fitted Q iteration, epsilon 0.1"),
    "fitted_q_tuned": NamedLearner(
        make=FittedQ,
        kind="tuned",
        about="fitted Q iteration, epsilon 0.02, levels pooled",
        settings={"epsilon": 0.02},
        of_run=_POOL,
    ),
    "q_learning": NamedLearner(make=QLearning, kind="untuned", about="linear Q-learning, epsilon 0.1, step 0.1"),
    "q_learning_tuned": NamedLearner(
        make=QLearning,
        kind="tuned",
        about="linear Q-learning, optimistic, step 0.5",
        settings={"epsilon": 0.0, "optimistic": True, "step_size": 0.5},
    ),
    "sarsa": NamedLearner(make=Sarsa, kind="untuned", about="SARSA(0.9), epsilon 0.1, step 0.1"),
    "sarsa_tuned": NamedLearner(
        make=Sarsa,
        kind="tuned",
        about="SARSA(0.9), optimistic, step 0.1",
        settings={"epsilon": 0.0, "optimistic": True, "step_size": 0.1},
    ),
    "replay_q": NamedLearner(make=ReplayQ, kind="untuned", about="experience replay, target network, epsilon 0.1"),
    "replay_q_tuned": NamedLearner(
        make=ReplayQ,
        kind="tuned",
        about="experience replay, target network, optimistic, step 0.1",
        settings={"epsilon": 0.0, "optimistic": True, "step_size": 0.1},
    ),
    "q_rex": NamedLearner(make=QRex, kind="untuned", about="Q-Rex, epsilon 0.1, step 0.1"),
    "q_rex_tuned": NamedLearner(
        make=QRex,
        kind="tuned",
        about="Q-Rex, optimistic, step 0.5, a new target after every 2 episodes",
        settings={
            "epsilon": 0.0,
            "optimistic": True,
            "step_size": 0.5,
            "buffer_episodes": 2,
            "target_every": 1,
        },
    ),
    "ucb_q_paper": NamedLearner(
        make=UCBQ, kind="untuned", about="UCB-Q with the bonus of its theorem", of_run={"c": paper_c}
    ),
    "ucb_q": NamedLearner(make=UCBQ, kind="untuned", about="UCB-Q, c 1"),
    "ucb_q_tuned": NamedLearner(make=UCBQ, kind="tuned", about="UCB-Q, c 0.003", settings={"c": 0.003}),
    "ucbvi": NamedLearner(make=UCBVI, kind="untuned", about="UCBVI, c 1", settings={"c": 1.0}),
    "ucbvi_tuned": NamedLearner(make=UCBVI, kind="tuned", about="UCBVI, c 0.1", settings={"c": 0.1}),
    "psrl": NamedLearner(make=PSRL, kind="untuned", about="PSRL; it has nothing to tune"),
}


def named_learner(name: str) -> NamedLearner:
    """The learner of a name; an unknown name is refused.

    >>> named_learner("psrl").kind
    'untuned'
    """
    if name not in LEARNERS:
        raise ValueError(f"learner must be one of {', '.join(LEARNERS)}; got {name!r}{did_you_mean(name, LEARNERS)}")
    return LEARNERS[name]
