"""Other learners to compare S4Q with, one file each.

Each is a Learner: `s4q.run` plays it with any collector and counts its regret, bytes and CPU time as those of S4Q. No
learner of the library uses them.
"""

from s4q.baselines.epsilon_greedy import EpsilonGreedy
from s4q.baselines.fitted_q import FittedQ
from s4q.baselines.live_target_s3q import LiveTargetS3Q
from s4q.baselines.lsvi_ucb import LSVIUCB, paper_beta
from s4q.baselines.named_learners import LEARNERS
from s4q.baselines.no_replay_s4q import NoReplayS4Q
from s4q.baselines.psrl import PSRL
from s4q.baselines.q_learning import QLearning
from s4q.baselines.q_rex import QRex
from s4q.baselines.replay_q import ReplayQ
from s4q.baselines.rlsvi import RLSVI
from s4q.baselines.sarsa import Sarsa
from s4q.baselines.sgd_s3q import SgdS3Q
from s4q.baselines.ucb_q import UCBQ, paper_c
from s4q.baselines.ucbvi import UCBVI
from s4q.baselines.variance_reduced_s3q import VarianceReducedS3Q

__all__ = [
    "LEARNERS",
    "LSVIUCB",
    "PSRL",
    "RLSVI",
    "UCBQ",
    "UCBVI",
    "EpsilonGreedy",
    "FittedQ",
    "LiveTargetS3Q",
    "NoReplayS4Q",
    "QLearning",
    "QRex",
    "ReplayQ",
    "Sarsa",
    "SgdS3Q",
    "VarianceReducedS3Q",
    "paper_beta",
    "paper_c",
]
