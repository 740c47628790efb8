"""How often guesses are accepted: a fit that ships, by position and kind of text."""

from __future__ import annotations

import pytest

from simulator.specs.model.fitted import load_acceptance_fit, speculation_table


def test_every_method_without_a_mean_has_a_fit_with_a_source() -> None:
    fit = load_acceptance_fit()
    fitted = {name for name, traits in speculation_table().methods.items() if traits.tokens is None}
    assert fitted == set(fit.methods) == set(fit.sources)
    assert all(found.log_sigma > 0 for found in fit.methods.values())
    spread = {name for name, traits in speculation_table().methods.items() if traits.task_sigma}
    assert spread == set(speculation_table().methods) - set(fit.methods)


def test_the_mean_of_all_texts_lies_between_theirs() -> None:
    found = load_acceptance_fit().methods["eagle3"]
    firsts = [rates[0] for rates in found.tasks.values()]
    assert min(firsts) < found.rates[0] < max(firsts)
    assert found.tasks["code"][0] == pytest.approx(max(firsts))
