"""The loop that lets a learner ask and a collector answer, and what it keeps: accounting, logs, checkpoints.

`s4q` exports the public names: run, Run, save, load, Autosave, Checkpoint, JsonLines, TensorBoard.
"""
