"""A collector that plays batches of episodes with matrix products, on any array module."""
