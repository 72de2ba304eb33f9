"""s4q: exploration with linear features, a regret guarantee, and memory that does not grow with episodes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from s4q import baselines, collectors, features, problems
from s4q.agent import Agent
from s4q.certificates.certifier import Certificate, certify
from s4q.core.blocks import Phi
from s4q.core.least_squares import Moments, StreamingLeastSquares, project_to_ball
from s4q.core.linear_q import LinearQ
from s4q.core.messages import (
    Answer,
    Asks,
    Collector,
    Evaluate,
    Explore,
    FeatureMap,
    Learner,
    Mixture,
    Regress,
    Regression,
    Request,
    Returns,
    Spec,
    UniformPolicy,
    Visits,
)
from s4q.core.optimism import QLevel
from s4q.core.policies import Policy as MarkovPolicy
from s4q.core.version import __version__ as __version__
from s4q.deployed_policy import Policy
from s4q.learners.bonus_rules import FixedBonus
from s4q.learners.policy_replay import PolicyReplayMemory
from s4q.learners.s3q import S3Q
from s4q.learners.s4q import S4Q
from s4q.problems import FiniteMDP
from s4q.running.accounting import Run
from s4q.running.archive import CheckpointError
from s4q.running.checkpoint import Autosave, Checkpoint, load, save
from s4q.running.evaluation_callback import EvaluationCallback
from s4q.running.logs import JsonLines, TensorBoard
from s4q.running.loop import run
from s4q.running.policy_evaluation import Evaluation
from s4q.stream import Stream

if TYPE_CHECKING:
    from s4q import theory
    from s4q.comparing import Comparison, compare
else:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> Any:
        """Import `s4q.theory` and comparisons when they are first used, since most programs never use them."""
        if name == "theory":
            return import_module("s4q.theory")
        if name in ("Comparison", "compare"):
            return getattr(import_module("s4q.comparing"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "Comparison", "compare", "theory"})


__all__ = [
    "S3Q",
    "S4Q",
    "Agent",
    "Answer",
    "Asks",
    "Autosave",
    "Certificate",
    "Checkpoint",
    "CheckpointError",
    "Collector",
    "Comparison",
    "Evaluate",
    "Evaluation",
    "EvaluationCallback",
    "Explore",
    "FeatureMap",
    "FiniteMDP",
    "FixedBonus",
    "JsonLines",
    "Learner",
    "LinearQ",
    "MarkovPolicy",
    "Mixture",
    "Moments",
    "Phi",
    "Policy",
    "PolicyReplayMemory",
    "QLevel",
    "Regress",
    "Regression",
    "Request",
    "Returns",
    "Run",
    "Spec",
    "Stream",
    "StreamingLeastSquares",
    "TensorBoard",
    "UniformPolicy",
    "Visits",
    "baselines",
    "certify",
    "collectors",
    "compare",
    "features",
    "load",
    "problems",
    "project_to_ball",
    "run",
    "save",
    "theory",
]
