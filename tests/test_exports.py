"""The public surface: small, sorted, complete, and nothing that cannot be imported."""

from __future__ import annotations

import importlib
import types
from typing import Any

import pytest

import holdfast
import holdfast.outbound
import holdfast.testing
import holdfast.worker

SURFACES = [holdfast, holdfast.outbound, holdfast.testing, holdfast.worker]


@pytest.mark.parametrize("module", SURFACES, ids=lambda module: module.__name__)
def test_public_names_are_sorted_without_regard_to_case(module: types.ModuleType) -> None:
    """Two people who add a name do not meet at the end of the list."""
    assert module.__all__ == sorted(module.__all__, key=str.casefold)
    assert len(module.__all__) == len(set(module.__all__))


@pytest.mark.parametrize("module", SURFACES, ids=lambda module: module.__name__)
def test_every_public_name_can_be_imported(module: types.ModuleType) -> None:
    """What is promised is there."""
    for name in module.__all__:
        assert getattr(module, name) is not None, name


@pytest.mark.parametrize("module", SURFACES, ids=lambda module: module.__name__)
def test_nothing_public_is_missing_from_the_list(module: types.ModuleType) -> None:
    """Whatever a module imports for its users is named; submodules are no names."""
    found = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and name != "annotations"
    }

    assert found == set(module.__all__)


def test_a_public_name_lives_in_the_module_that_its_class_says() -> None:
    """No shims: tracebacks and documentation point at the real place."""
    for name in holdfast.__all__:
        value = getattr(holdfast, name)
        home = importlib.import_module(value.__module__)
        assert getattr(home, name) is value, name


def test_the_error_tree_in_the_docstring_is_the_real_one() -> None:
    """Every error is drawn, with its code."""
    errors: Any = importlib.import_module("holdfast.core.errors")
    drawn = errors.__doc__ or ""
    kinds: list[Any] = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.HoldfastError)
    ]

    assert len(kinds) > 20
    for kind in kinds:
        assert kind.__name__ in drawn
        if kind is not errors.HoldfastError:
            assert kind.code in drawn
    assert len({kind.code for kind in kinds}) == len(kinds)
