"""Collectors that step an environment: one env, a vector of envs, and what a live stream shares with them."""
