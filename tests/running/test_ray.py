"""The Ray executor: the same bits as without, and whatever dies. Skipped where Ray is missing; `make ray` has it."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from executor_runs import HORIZON, KINDS, RIVER, Deadly, Noted, attempts, outcome, survivor
from executor_storms import kill_the_driver, killing, played, same
from small_envs import Waves
from states import bits
from typer.testing import CliRunner

import s4q
from s4q.cli import app
from s4q.collectors import GymCollector

ray = pytest.importorskip("ray", reason='Ray is missing; `pip install "s4q[ray]"` brings it, and so does `make ray`')
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[s4q.Ray]:
    with s4q.Ray(workers=2) as executor:
        yield executor


@pytest.mark.parametrize("kind", KINDS)
def test_ray_gives_the_bits_of_none(kind: str, cluster: s4q.Ray, tmp_path: Path) -> None:
    run, state = outcome(kind, tmp_path / "run.s4q", cluster)
    assert state == outcome(kind, tmp_path / "serial.s4q", None)[1]
    assert run.cpu_seconds > 0


def test_a_kill_storm_on_ray(cluster: s4q.Ray, tmp_path: Path) -> None:
    notes = tmp_path / "notes"

    def choose(number: int) -> int | None:
        begun = attempts(notes)
        return begun[-1] if begun else None

    with killing(choose, every=0.7) as killed:
        answer, cost = played(Noted(RIVER, 3, notes, seconds=0.35), cluster, 100)
    assert len(killed) >= 20
    assert 100 < len(attempts(notes)) <= 100 + len(killed)
    assert 0 < cost.lost_tries <= len(killed)
    assert same(answer, played(Noted(RIVER, 3, tmp_path / "others", 0.0), s4q.Serial(), 100)[0])


def test_a_comparison_on_ray_has_the_rows_of_one_without(cluster: s4q.Ray, tmp_path: Path) -> None:
    cells: Any = (["chain:n_states=3,horizon=3", "low_rank"], ["s4q", "q_learning"])

    def rows(**how: Any) -> list[dict[str, Any]]:
        timed = ("cpu_seconds", "learner_seconds", "curve")
        found = s4q.compare(*cells, seeds=2, episodes=30, **how)
        return [{key: value for key, value in row.items() if key not in timed} for row in found]

    results = tmp_path / "r.sqlite"
    alone = rows(processes=1)
    assert rows(ray=cluster, results=results) == alone
    assert rows(processes=1, results=results) == alone
    # All of them are kept, so nothing is played: not even the address is looked for.
    assert rows(ray=s4q.Ray("nowhere:1"), results=results) == alone


def test_the_command_compares_on_ray(cluster: s4q.Ray) -> None:
    line = ["compare", "-p", "chain:n_states=3,horizon=3", "-l", "psrl", "--seeds", "2", "--episodes", "9", "--json"]
    alone, on_ray = (CliRunner().invoke(app, [*line, *how]) for how in (["--workers", "1"], ["--ray"]))
    assert alone.exit_code == on_ray.exit_code == 0, on_ray.output
    regrets = [[row["regret"] for row in json.loads(done.stdout)] for done in (alone, on_ray)]
    assert regrets[0] == regrets[1]


def test_calls_whose_worker_dies_are_made_again(cluster: s4q.Ray, tmp_path: Path) -> None:
    calls = [(tmp_path / str(i), i % 3) for i in range(7)]
    assert dict(cluster.each(survivor, calls)) == {call: call[1] + 1 for call in calls}
    with pytest.raises(RuntimeError, match=r"2 workers died over .*doomed"):
        list(s4q.Ray(workers=2, tries=2).each(survivor, [(tmp_path / "doomed", 5)]))
    with pytest.raises(RuntimeError, match=r"(?s)a Ray task failed: .*must not be negative"):
        list(cluster.each(survivor, [(tmp_path / "x", -1)]))


def test_a_task_that_always_fails_stops_the_run_with_the_cause(cluster: s4q.Ray, tmp_path: Path) -> None:
    features = Waves(3, 4, dense=False)
    spec = s4q.Spec.of(features, horizon=HORIZON, reward_range=(-1.5, 0.5))
    whole: Any = None
    for how, kind, says in (
        ("raises", ValueError, "the robot does not answer"),
        ("dies", RuntimeError, "3 workers died while they played episodes .* of request"),
    ):
        harmless, path = tmp_path / f"harmless-{how}", tmp_path / f"{how}.s4q"

        def parts() -> tuple[Any, Any]:
            env = Deadly(how, harmless)
            learner = s4q.S4Q(spec, "realisable", trigger=60.0, c_replay=6.0)
            return learner, GymCollector(env, features, spec, seed=3)

        with pytest.raises(kind, match=says):
            s4q.run(*parts(), 1_200, executor=s4q.Ray(workers=2, tries=3), checkpoint=path)
        begun = s4q.load(path)
        assert 0 < begun.progress.episodes < 1_200
        harmless.touch()
        s4q.run(begun, parts()[1], 1_200, executor=cluster, checkpoint=path)
        if whole is None:
            s4q.run(*parts(), 1_200, checkpoint=tmp_path / "whole.s4q")
            whole = bits(s4q.load(tmp_path / "whole.s4q"))
        assert bits(s4q.load(path)) == whole


def test_a_killed_driver_leaves_no_process_and_a_good_checkpoint(tmp_path: Path) -> None:
    kill_the_driver(tmp_path, "ray")


def test_the_loss_of_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two simulated nodes; the one that holds half of the work dies with it."""
    from ray.cluster_utils import Cluster

    if ray.is_initialized():  # the cluster of the other tests
        ray.shutdown()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        lost = nodes.add_node(num_cpus=1)
        notes = tmp_path / "notes"
        collector = Noted(RIVER, 3, notes, seconds=0.2)
        removed: list[int] = []

        def remove(number: int) -> None:
            if len(attempts(notes)) >= 20 and not removed:
                removed.append(number)
                nodes.remove_node(lost, allow_graceful=False)

        with s4q.Ray(nodes.address, workers=2) as executor, killing(remove, every=0.1):
            answer, _ = played(collector, executor, 60)
        assert removed
        assert len(attempts(notes)) <= 60 + 4  # again: what the node played, and answers that were still on it
        assert same(answer, played(Noted(RIVER, 3, tmp_path / "others", 0.0), s4q.Serial(), 60)[0])
    finally:
        ray.shutdown()
        nodes.shutdown()
