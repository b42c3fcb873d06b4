"""Singular and plural in messages for people."""

from __future__ import annotations


def many(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
