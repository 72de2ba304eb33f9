"""Workers and drivers that are killed while shards are played: the same bits, and nobody left behind."""

from pathlib import Path

import pytest
from executor_runs import RIVER, Noted, attempts
from executor_storms import kill_the_driver, killing, played, same

import s4q


@pytest.mark.slow
def test_a_kill_storm_on_processes(tmp_path: Path) -> None:
    collector = Noted(RIVER, 3, tmp_path / "notes", seconds=0.35)
    with s4q.Processes(2) as executor:

        def choose(number: int) -> int | None:
            pids = executor._pool.pids if executor._pool is not None else []
            return pids[number % len(pids)] if pids else None

        with killing(choose, every=0.7) as killed:
            answer, cost = played(collector, executor, 100)
    assert len(killed) >= 20
    assert 100 < len(attempts(tmp_path / "notes")) <= 100 + len(killed)
    assert 0 < cost.lost_tries <= len(killed)
    calm = Noted(RIVER, 3, tmp_path / "others", seconds=0.0)
    assert same(answer, played(calm, s4q.Serial(), 100)[0])


@pytest.mark.slow
def test_a_killed_driver_leaves_no_process_and_a_good_checkpoint(tmp_path: Path) -> None:
    kill_the_driver(tmp_path, "processes")
