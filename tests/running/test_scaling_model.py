"""The simulator of `benchmarks.scaling` against calendars worked by hand, and against what no calendar can beat."""

import pytest
from benchmarks.scaling import Costs, answer_bytes, check_table, payload_bytes, prediction_table, simulated


def test_calendars_by_hand() -> None:
    assert simulated(8, 1, play=1.0, answer=0.0) == 8.0
    assert simulated(8, 4, play=1.0, answer=0.0) == 2.0
    assert simulated(3, 2, play=1.0, answer=0.0) == 2.0
    # The driver takes 1 s for each of 8 answers, the first of which comes after 1 s.
    assert simulated(8, 4, play=1.0, answer=1.0) == 9.0
    # One worker never waits, because it has the next task at hand; only the last answer is seen.
    assert simulated(5, 1, play=2.0, answer=0.5) == 10.5
    # Policies are sent once to each worker, one after the other: they begin after 3 s and after 6 s.
    assert simulated(2, 2, play=10.0, answer=0.0, payload=3.0) == 16.0


@pytest.mark.parametrize("workers", [1, 2, 3, 10, 50])
@pytest.mark.parametrize("answer", [0.0, 0.01, 0.3])
def test_between_what_is_possible_and_what_one_worker_takes(workers: int, answer: float) -> None:
    n, play = 40, 1.0
    took = simulated(n, workers, play, answer)
    assert took >= max(n * play / workers, n * answer + play) - 1e-9
    assert took <= n * (play + answer) + 1e-9
    assert took <= simulated(n, max(1, workers - 1), play, answer) + play + answer


def test_bytes_of_messages() -> None:
    assert answer_bytes(64) == 8 * (64 * 64 + 128)
    assert payload_bytes(64, policies=3) == 8 * 31 * (64 * 64 + 64)


def test_the_prediction_has_a_row_for_each_size() -> None:
    costs = Costs(task=1e-4, byte=1e-9, episode=1e-4, feature_pair=1e-8)
    assert costs.play(100, episodes=10) == pytest.approx(10 * (1e-4 + 1e-4))
    table = prediction_table(costs, 64)
    assert table.row_count == 4
    assert list(table.columns[0].cells) == ["64", "256", "1024", "4096"]
    assert all(1 < float(cell) <= 10 for cell in table.columns[5].cells)


@pytest.mark.slow
def test_the_check_runs() -> None:
    costs = Costs(task=1e-4, byte=1e-9, episode=1e-4, feature_pair=1e-8)
    assert check_table(costs, n_shards=2, repeat=1).row_count == 2
