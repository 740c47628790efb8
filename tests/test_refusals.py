"""``simulator.errors``: refusals say by their name what is wrong, in one line, and cross processes as they are."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import (
    LONGEST_VALUE,
    ExitCode,
    FileError,
    InfeasibleError,
    MissingPackageError,
    Option,
    ProfileError,
    RoofcastError,
    contradiction,
    did_you_mean,
    ignored_option,
    missing_field,
    no_effect,
    same_words,
    shown,
)

NAMED = (no_effect, ignored_option, contradiction, missing_field)
TEXT = st.text(max_size=300)
KINDS = (RoofcastError, ProfileError, FileError, InfeasibleError)


@pytest.mark.parametrize("named", NAMED, ids=lambda named: named.__name__)
def test_a_named_refusal_has_its_name_as_code_and_is_the_users(named: object) -> None:
    assert callable(named)
    error = named("changes nothing", field="tp_size")
    assert type(error) is RoofcastError
    assert (error.code, error.field, error.exit_code) == (named.__name__, "tp_size", ExitCode.USAGE)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("named", "hint"), [(no_effect, "leave it out"), (ignored_option, "leave it out"),
                                             (contradiction, ""), (missing_field, "")])  # fmt: skip
def test_what_is_idle_is_to_be_left_out_unless_a_hint_says_more(named: object, hint: str) -> None:
    assert callable(named)
    assert named("x", field="y").hint == hint
    assert named("x", field="y", hint="say why").hint == "say why"


@given(message=TEXT, field=st.text(max_size=400), hint=TEXT)
def test_every_refusal_is_one_printable_line(message: str, field: str, hint: str) -> None:
    for kind in KINDS:
        said = str(kind(message, field=field, hint=hint))
        assert said == "" or said.isprintable()
        assert len(said.splitlines()) <= 1


@given(message=TEXT, field=st.text(max_size=50), hint=TEXT)
def test_a_refusal_that_crossed_processes_is_the_same(message: str, field: str, hint: str) -> None:
    for kind in KINDS:
        error = kind(message, field=Option(field) if len(field) % 2 else field, hint=hint)
        again = pickle.loads(pickle.dumps(error.offering({"max_gpus": len(hint)})))
        assert again.offers == {"max_gpus": len(hint)}
        assert type(again) is kind
        assert str(again) == str(error)
        assert (again.code, again.exit_code, type(again.field)) == (error.code, error.exit_code, type(error.field))


@pytest.mark.parametrize(
    ("kind", "code"), [(RoofcastError, 2), (InfeasibleError, 3), (ProfileError, 4), (FileError, 5)]
)
def test_each_kind_has_the_exit_code_of_the_contract(kind: type[RoofcastError], code: int) -> None:
    assert kind("x").exit_code == code


def test_a_missing_package_is_a_usage_error_that_says_how_to_get_it() -> None:
    error = MissingPackageError("needs pandas", hint="pip install pandas")
    assert (error.exit_code, error.code) == (ExitCode.USAGE, "missing_package")
    assert str(error) == "needs pandas (pip install pandas)"


@given(value=st.one_of(TEXT, st.binary(max_size=300), st.integers(), st.lists(TEXT, max_size=30)))
def test_a_value_is_shown_in_a_few_words(value: object) -> None:
    assert len(shown(value)) <= LONGEST_VALUE


def test_an_option_stands_between_backquotes_and_a_field_does_not() -> None:
    assert str(no_effect("is idle", field=Option("spares"), hint="")) == "`spares`: is idle"
    assert str(no_effect("is idle", field="spares", hint="")) == "spares: is idle"


@pytest.mark.parametrize("word", ["tensor-parallel-size", "TP", "--tp", "tensor_parallel_size"])
def test_words_of_engines_lead_to_the_field(word: str) -> None:
    assert "tp_size" in same_words(word)
    assert did_you_mean(word, ["tp_size", "pp_size"]) == "did you mean tp_size?"


@given(value=TEXT, known=st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=20))
def test_a_suggestion_names_only_what_is_known(value: str, known: list[str]) -> None:
    said = did_you_mean(value, known)
    words = said.removeprefix("did you mean ").removeprefix("known: ").removesuffix("?").removesuffix(", ...")
    parts = words.replace(" or ", ", ").split(", ")
    assert set(parts) <= set(known)


@given(known=st.lists(st.text("abcdef", min_size=2, max_size=6), min_size=1, max_size=9, unique=True))
def test_what_is_spelled_right_is_suggested_first(known: list[str]) -> None:
    assert did_you_mean(known[0].upper(), known).startswith(f"did you mean {known[0]}")
