"""Circular doubly linked lists in the first two columns of an array, with constant-time append and removal."""

from __future__ import annotations

from typing import Any

from simulator.engine.compilation import compiled
from simulator.engine.state import NEXT, PREV


@compiled
def append(nodes: Any, head: int, node: int) -> None:
    """Put ``node`` at the end of the list of ``head``."""
    last = nodes[head, PREV]
    nodes[last, NEXT] = node
    nodes[node, PREV] = last
    nodes[node, NEXT] = head
    nodes[head, PREV] = node


@compiled
def unlink(nodes: Any, node: int) -> None:
    """Take ``node`` out of whatever list it is in; a node that is in none stays so."""
    left, right = nodes[node, PREV], nodes[node, NEXT]
    nodes[left, NEXT] = right
    nodes[right, PREV] = left
    nodes[node, NEXT] = node
    nodes[node, PREV] = node
