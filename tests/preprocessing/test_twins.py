from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from ppr_cases import NAMED, Edges, adjacency, graphs, topology

from preprocessing.twins import twin_leaders


def check(graph: tuple[int, Edges]) -> None:
    """Two nodes share a class exactly when exchanging them leaves the adjacency as it is."""
    matrix = adjacency(*graph)
    classes = twin_leaders(topology(matrix))
    A = matrix.toarray()
    for a, b in combinations(range(len(A)), 2):
        order = np.arange(len(A))
        order[[a, b]] = b, a
        is_twin = (A[np.ix_(order, order)] == A).all()
        assert is_twin == (classes[a] == classes[b] >= 0)


@settings(deadline=None, max_examples=100)
@given(graphs())
def test_classes_are_those_of_the_definition(graph: tuple[int, Edges]) -> None:
    check(graph)


def test_classes_of_special_graphs() -> None:
    for graph in NAMED.values():
        check(graph)


def test_a_class_is_known_by_its_first_node() -> None:
    star_with_a_tail = adjacency(6, [(0, 1), (0, 2), (0, 3), (3, 4), (4, 5)])
    assert twin_leaders(topology(star_with_a_tail)).tolist() == [-1, 1, 1, -1, -1, -1]
