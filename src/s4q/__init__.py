"""s4q: exploration with linear features, a regret guarantee, and memory that does not grow with episodes."""

from s4q import collectors, features, problems
from s4q.blocks import Phi
from s4q.certificate import Certificate, certificate
from s4q.least_squares import Moments, StreamingLeastSquares, project_to_ball
from s4q.linear_q import LinearQ
from s4q.policy_replay import PolicyReplayMemory
from s4q.problems import FiniteMDP
from s4q.requests import Mixture, Spec, UniformPolicy
from s4q.run import Run, run
from s4q.s3q import S3Q, FixedBonus
from s4q.s4q import S4Q

__version__ = "0.1.0"

__all__ = [
    "S3Q",
    "S4Q",
    "Certificate",
    "FiniteMDP",
    "FixedBonus",
    "LinearQ",
    "Mixture",
    "Moments",
    "Phi",
    "PolicyReplayMemory",
    "Run",
    "Spec",
    "StreamingLeastSquares",
    "UniformPolicy",
    "certificate",
    "collectors",
    "features",
    "problems",
    "project_to_ball",
    "run",
]
