"""S3Q (Algorithm 1), S4Q (Algorithm 2) and what they need.

A learner sees numbers only: no environment, no random draws.
"""
