"""Every paper tag stands exactly once in the code and is listed in docs/paper_map.md, and the other way round.

Every label of the paper has a row there too, and what the row names exists.
"""

import re
from collections import Counter
from importlib import import_module
from pathlib import Path

from s4q.theory.run_checks import AS_PRESCRIBED
from s4q.theory.statements import ASSUMPTIONS, IN_THE_PAPER

ROOT = Path(__file__).parent.parent
# Every label of the paper's LaTeX source, in its order.
LABELS = [
    "thm:Intro",
    "eqn:Sequoia",
    "EqnBoundedFeatures",
    "eqn:FunctionalSpace",
    "asm:InherentBellman",
    "asm:LowRank",
    "eqn:BestPredictor",
    "def:ModelMisspecificationIBE",
    "eqn:TransferError",
    "def:ModelMisspecificationLR",
    "sec:Qlearning",
    "SecIntuition",
    "eqn:BasicQupdate",
    "eqn:Qloss",
    "SecS3",
    "eqn:TDerror",
    "alg:S3Qlearning",
    "line:stoppingcond",
    "line:TDError",
    "line:UpdateRule",
    "line:TargetUpdate",
    "line:Qbest",
    "sec:Sequoia",
    "alg:Sequoia",
    "line:SequoiaCallsQlearning",
    "line:GreedyPolicy",
    "line:NewPolicyRepeat",
    "line:AccomulatorIncrement",
    "line:NewPolicyTrigger",
    "line:bonusS4",
    "SecMain",
    "SecBonus",
    "eqn:Bonus",
    "SecS4Guarantees",
    "thm:Sequoia",
    "EqnRegretBound",
    "SecS3Guarantees",
    "eqn:Qcov",
    "EqnDefnErr",
    "EqnDefnAlpha",
    "EqnDefnUncertainty",
    "EqnDefnComparator",
    "thm:Q-learning",
    "eqn:ErrorBracketIBE",
    "eqn:VBracketIBE",
    "SecDiscussion",
    "sec:ProofOfS3",
    "thm:Q-learningExp",
    "eqn:ErrorBracketLR",
    "eqn:VBracketLR",
    "lem:EquivalenceWithLeastSquares",
    "lem:OrderOfUpdates",
    "eqn:QparBest",
    "lem:LeastSquareErrorBounds",
    "eqn:SymmetricBound",
    "sec:ProofEquivalenceWithLeastSquares",
    "alg:ShermanMorrisonUpdate",
    "line:x",
    "line:Covupdate",
    "eqn:ConstrainedERM",
    "eqn:InductiveHypothesis",
    "sec:LearningMechanics",
    "sec:proofOfLeastSquareErrorBound",
    "eqn:PopulationMinimizer",
    "eqn:EmpiricalMinimizer",
    "lem:Convergence2PopulationMinimizer",
    "EqnMinaBound",
    "sec:Convergence2PopulationMinimizer",
    "EqnMehtaBound",
    "SecProofSequoia",
    "lem:PhasedRegret",
    "eqn:bonusphase",
    "eqn:ExpectedUncertaintyParam",
    "lem:BonusBound",
    "lem:Optimism",
    "eqn:MainTermIntermediate",
    "eqn:TriggeringValue",
    "lem:EllipticPotential",
    "lem:NumberOfPhases",
    "sec:PhasedRegret",
    "eqn:Regret2Regretphase",
    "sec:ProblemDependentBonus",
    "eqn:InLemmaCovariance",
    "sec:Optimism",
    "EqnIndBound",
    "sec:EllipticPotential",
    "sec:NumberOfPhases",
    "sec:Qexp",
    "SecBoundsInfoGain",
    "LemInfoGain",
    "EqnInfoUpper",
    "EqnInfoLower",
    "eqn:detratio",
    "EqnInterLower",
    "EqnLogLower",
    "EqnMyTrigger",
    "lem:ProportionalEstimate",
    "EqnSandwich",
    "EqnEmpBern",
    "EqnVarBound",
    "eqn:Intermediate101",
    "EqnZass",
    "prop:ConcentrationRegularizedCovariance",
    "eqn:RegularizedCovarianceSecondStatement",
    "eqn:CovarianceConcentration",
    "lem:Tropp",
    "EqnTroppOne",
    "eqn:YprimeDef",
    "eqn:ConcentrationIntermediate",
    "eqn:IntermediateXYdef",
    "lem:LogDet",
    "eqn:QsumBound",
    "lem:ExcessLoss",
    "eqn:OptimalityConditionUnconstrained",
    "lem:Sigma2ERM",
    "EqnInter",
]

TAG = re.compile(r"\[((?:Alg\d|eqn|Lemma|Thm):[A-Za-z0-9]+)\]")


def tags_in_code() -> Counter[tuple[str, str]]:
    """(tag, file) pairs with the number of times they occur."""
    found: Counter[tuple[str, str]] = Counter()
    for path in (ROOT / "src" / "s4q").rglob("*.py"):
        for tag in TAG.findall(path.read_text()):
            found[tag, str(path.relative_to(ROOT / "src" / "s4q"))] += 1
    return found


def tags_in_map() -> list[tuple[str, str]]:
    """(tag, file) of each row of the table."""
    rows = re.findall(r"^\| `\[([^\]]+)\]` \|[^|]*\| `([^`]+)` \|", (ROOT / "docs" / "paper_map.md").read_text(), re.M)
    return [(tag, name) for tag, name in rows]


def test_every_tag_occurs_exactly_once_in_the_code() -> None:
    per_tag: Counter[str] = Counter()
    for (tag, _), n in tags_in_code().items():
        per_tag[tag] += n
    assert per_tag
    assert {tag: n for tag, n in per_tag.items() if n != 1} == {}


def test_code_and_map_list_the_same_tags_in_the_same_files() -> None:
    listed = tags_in_map()
    assert len(listed) == len(set(listed))
    assert set(listed) == set(tags_in_code())


def test_algorithms_1_and_3_are_covered() -> None:
    tags = {tag for tag, _ in tags_in_code()}
    for tag in ("Alg1:TDError", "Alg1:UpdateRule", "Alg1:Project", "Alg1:TargetUpdate", "Alg1:Qbest", "Alg3:x"):
        assert tag in tags


def rows_by_label() -> list[tuple[str, str]]:
    """(label, what stands for it) of each row of the last table."""
    text = (ROOT / "docs" / "paper_map.md").read_text()
    return re.findall(r"^\| `([A-Za-z][^`]*)` \|[^|]*\| ([^|]+) \|$", text, re.M)


def exists(dotted: str) -> bool:
    """Is there such a module, or a name in one, or a member of a class in one?"""
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:split]))
        except ImportError:
            continue
        for name in parts[split:]:
            found = getattr(found, name, None)
        return found is not None
    return False


def test_every_label_of_the_paper_has_one_row() -> None:
    assert len(LABELS) == len(set(LABELS)) == 116
    assert [label for label, _ in rows_by_label()] == LABELS


def test_what_a_row_names_exists() -> None:
    tags, places = (
        {tag for tag, _ in tags_in_code()},
        [one.where for one in (*ASSUMPTIONS, *AS_PRESCRIBED, *IN_THE_PAPER)],
    )
    missing = []
    for label, here in rows_by_label():
        missing += [(label, name) for name in re.findall(r"`(s4q\.[A-Za-z0-9_.]+)`", here) if not exists(name)]
        missing += [(label, tag) for tag in re.findall(r"`\[([^\]]+)\]`", here) if tag not in tags]
        reason = re.match(r"Heading|Step|Not here|Quoted|True by definition", here)
        assert "`" in here or reason, f"{label} has neither code nor a reason"
        if "audit row" in here and not any(label in place for place in places):
            missing.append((label, "audit row"))
    assert missing == []
    assert not exists("s4q.theory.bounds.no_such_function")
