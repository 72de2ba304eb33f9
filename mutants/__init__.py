"""Mutation testing of the core: faults are planted one at a time, and the tests of the area must notice."""
