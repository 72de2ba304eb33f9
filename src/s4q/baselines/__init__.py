"""Other learners to compare S4Q with, for tabular problems: UCBVI and PSRL.

Each is a Learner: `s4q.run` plays it with any collector and counts its regret, bytes and CPU time as those of S4Q. No
learner of the library uses them.
"""

from s4q.baselines.psrl import PSRL
from s4q.baselines.ucbvi import UCBVI

__all__ = ["PSRL", "UCBVI"]
