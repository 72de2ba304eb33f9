"""s4q: exploration with linear features in bounded memory. The presets `paper` and `tight` have a regret guarantee."""

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
from s4q.environment_checks import EnvReport, check_env
from s4q.learners.bonus_rules import FixedBonus
from s4q.learners.policy_replay import PolicyReplayMemory
from s4q.learners.s3q import S3Q
from s4q.learners.s4q import S4Q
from s4q.problems import FiniteMDP
from s4q.running.accounting import Run
from s4q.running.archive import CheckpointError
from s4q.running.checkpoint import Autosave, Checkpoint, load, save
from s4q.running.evaluation_callback import EvaluationCallback
from s4q.running.executors import Executor, Processes, Ray, Serial
from s4q.running.logs import JsonLines, TensorBoard
from s4q.running.loop import run
from s4q.running.policy_evaluation import Evaluation
from s4q.stream import Stream

_LATER = ("report", "theory", "wrappers")  # modules that most programs never use, or that need an extra
_OF_COMPARING = ("Comparison", "compare")

if TYPE_CHECKING:
    from s4q import report, theory, wrappers
    from s4q.comparing import Comparison, compare
else:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> Any:
        """Import `s4q.report`, `s4q.theory`, `s4q.wrappers` and comparisons when they are first used."""
        if name in _LATER:
            return import_module(f"s4q.{name}")
        if name in _OF_COMPARING:
            return getattr(import_module("s4q.comparing"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_OF_COMPARING})


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
    "EnvReport",
    "Evaluate",
    "Evaluation",
    "EvaluationCallback",
    "Executor",
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
    "Processes",
    "QLevel",
    "Ray",
    "Regress",
    "Regression",
    "Request",
    "Returns",
    "Run",
    "Serial",
    "Spec",
    "Stream",
    "StreamingLeastSquares",
    "TensorBoard",
    "UniformPolicy",
    "Visits",
    "baselines",
    "certify",
    "check_env",
    "collectors",
    "compare",
    "features",
    "load",
    "problems",
    "project_to_ball",
    "report",
    "run",
    "save",
    "theory",
    "wrappers",
]
