"""The wall between learners and collectors is typed: mypy strict sees a wrong answer to a request."""

import re
from pathlib import Path

from mypy import api

GOOD = """
import numpy as np
import s4q
from s4q import Asks, Collector, Explore, FeatureMap, Learner, Regress, Regression, Returns, Visits
from s4q.collectors import BatchCollector, CountCollector, EpisodeCollector, GymCollector, VectorCollector

mdp = s4q.problems.chain()
collector: Collector = CountCollector(mdp)
collectors: list[type[Collector]] = [BatchCollector, CountCollector, EpisodeCollector, GymCollector, VectorCollector]
learners: list[Learner] = [s4q.S4Q(mdp), s4q.S3Q(mdp, s4q.UniformPolicy(2))]
learners += [s4q.baselines.UCBVI(mdp), s4q.baselines.PSRL(mdp)]
features: FeatureMap = mdp.features
policies: list[s4q.MarkovPolicy] = [s4q.UniformPolicy(2), s4q.LinearQ.from_arrays(np.zeros((1, 1, 1)))]
mixture = s4q.Mixture([s4q.UniformPolicy(2)], np.ones(1))
regress = Regress(0, 9, mixture, None, n_episodes=5)
explore = Explore(0, s4q.UniformPolicy(2), np.ones((10, 20, 1, 1)), (1.0, 0.0), n_episodes=5)
evaluate = s4q.Evaluate(0, s4q.UniformPolicy(2), 5)
regression: Regression = collector.collect(regress)
visits: Visits = collector.collect(explore)
returns: Returns = collector.collect(evaluate)
learners[0].tell(regress, regression)
learners[0].tell(explore, visits)
"""

BAD = [
    ("learners[0].tell(regress, visits)", "arg-type|misc|type-var"),
    ("learners[1].tell(explore, regression)", "arg-type|misc|type-var"),
    ("s4q.S4Q(mdp).tell(regress, returns)", "arg-type|misc|type-var"),
    ("wrong: Visits = collector.collect(regress)", "assignment|arg-type"),
    ("other: Returns = CountCollector(mdp).collect(explore)", "assignment|arg-type"),
    ("collector.collect(mixture)", "arg-type"),
    ("Regress(0, 9, mixture, s4q.LinearQ.from_arrays(np.zeros((1, 1, 1))), n_episodes=5)", "arg-type"),
    ("bad_features: FeatureMap = mdp", "assignment"),
    ("bad_policy: s4q.MarkovPolicy = mdp", "assignment"),
]


def test_mypy_sees_a_wrong_answer(tmp_path: Path) -> None:
    """One run over all lines: those of GOOD have no error, each of BAD has one."""
    n_good = len(GOOD.splitlines())
    snippet = tmp_path / "snippet.py"
    snippet.write_text(GOOD + "\n".join(line for line, _ in BAD) + "\n")
    root = Path(__file__).parents[1]
    # `make test` has just filled the cache.
    options = ["--strict", "--config-file", str(root / "pyproject.toml"), "--cache-dir", str(root / ".mypy_cache")]
    output, trouble, _ = api.run([*options, str(snippet)])
    assert not trouble
    found = {int(n): message for n, message in re.findall(r"snippet\.py:(\d+): error: (.*)", output)}
    assert not [found[n] for n in found if n <= n_good], output
    for n, (line, code) in enumerate(BAD, start=n_good + 1):
        assert re.search(rf"\[({code})\]", found.get(n, "")), f"{line}: {found.get(n)}"
