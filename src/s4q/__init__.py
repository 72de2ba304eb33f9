"""s4q: exploration with linear features, a regret guarantee, and memory that does not grow with episodes."""

from s4q import collectors, features, problems, theory
from s4q.agent import Agent, Evaluation
from s4q.archive import CheckpointError
from s4q.blocks import Phi
from s4q.bonus_rules import FixedBonus
from s4q.certificate import Certificate, certificate
from s4q.checkpoint import Autosave, Checkpoint, load, save
from s4q.least_squares import Moments, StreamingLeastSquares, project_to_ball
from s4q.ledger import Run
from s4q.linear_q import LinearQ
from s4q.logs import JsonLines, TensorBoard
from s4q.policy_replay import PolicyReplayMemory
from s4q.problems import FiniteMDP
from s4q.requests import Mixture, Spec, UniformPolicy
from s4q.run import run
from s4q.s3q import S3Q
from s4q.s4q import S4Q
from s4q.stream import Stream
from s4q.version import __version__ as __version__

__all__ = [
    "S3Q",
    "S4Q",
    "Agent",
    "Autosave",
    "Certificate",
    "Checkpoint",
    "CheckpointError",
    "Evaluation",
    "FiniteMDP",
    "FixedBonus",
    "JsonLines",
    "LinearQ",
    "Mixture",
    "Moments",
    "Phi",
    "PolicyReplayMemory",
    "Run",
    "Spec",
    "Stream",
    "StreamingLeastSquares",
    "TensorBoard",
    "UniformPolicy",
    "certificate",
    "collectors",
    "features",
    "load",
    "problems",
    "project_to_ball",
    "run",
    "save",
    "theory",
]
