"""Collectors of finite problems whose tables are known: counts instead of episodes, and the reference player."""
