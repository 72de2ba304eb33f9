"""Executors: who plays the shards of a request. All give the same bits, so only time depends on the choice.

`run` opens a session of one executor and asks it for the answer of one shard after the other. `Serial` plays in this
process, `Processes` in worker processes of this machine, `Ray` on a Ray cluster. An executor knows no algorithm.
"""

from s4q.running.executors.executor import Cost, Executor, Serial, Session, collect
from s4q.running.executors.processes import Processes
from s4q.running.executors.ray_tasks import Ray

__all__ = ["Cost", "Executor", "Processes", "Ray", "Serial", "Session", "collect"]
