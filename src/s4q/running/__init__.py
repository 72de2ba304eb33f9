"""The loop that lets a learner ask and a collector answer, and what it keeps: accounting, logs, checkpoints."""
