"""How far a policy can be from the best one, proved from what a run has seen."""
