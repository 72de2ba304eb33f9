"""Notes the return, the steps and the CPU time of every training episode on classic control."""

import time
from typing import Any


def metered(env: Any, record: dict[str, list[float]]) -> Any:
    """The same environment, which now notes what is played. Several environments may share one record.

    Args:
        env: The environment.
        record: Lists that are filled: `returns`, `lengths` and `cpu`, an entry for each finished episode.
    """
    reset, step, running = env.reset, env.step, {"return": 0.0, "length": 0}

    def noted_reset(*args: Any, **options: Any) -> Any:
        running.update({"return": 0.0, "length": 0})
        return reset(*args, **options)

    def noted_step(action: Any) -> Any:
        result = step(action)
        running["return"] += float(result[1])
        running["length"] += 1
        if result[2] or result[3]:
            record["returns"].append(running["return"])
            record["lengths"].append(running["length"])
            record["cpu"].append(round(time.process_time(), 3))
        return result

    env.reset, env.step = noted_reset, noted_step
    return env


def new_record() -> dict[str, list[float]]:
    """An empty record."""
    return {"returns": [], "lengths": [], "cpu": []}


def summed(record: dict[str, list[float]], began: float, held: int, evaluation: float) -> dict[str, Any]:
    """A run as plain values.

    Args:
        record: What was noted.
        began: CPU seconds of the process when learning began.
        held: Bytes that the learner holds at the end.
        evaluation: Mean return of the learned policy, without exploration, on fresh episodes.
    """
    return {
        "returns": [round(one, 1) for one in record["returns"]],
        "lengths": record["lengths"],
        "cpu": [round(one - began, 2) for one in record["cpu"]],
        "bytes": held,
        "evaluation": round(evaluation, 1),
    }
