"""What learners and collectors share: arrays, validation, Spec, Q functions, policies, messages, least squares.

Everything else may import this folder. It imports nothing of s4q but itself.
"""
