"""``simulator.api.scenarios`` and ``simulator.api.published``: lines in order, and rows that repeat their figures."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from simulator.api.published import COLUMNS, published
from simulator.api.scenarios import (
    NumberedLine,
    answer_request,
    answered_lines,
    numbered_lines,
    simulate_line,
    unanswered_lines,
)
from simulator.errors import FileError, RoofcastError

SCENARIO = {"kind": "batch", "model": "llama-3.1-8b", "hardware": "h100", "batch_size": 2, "isl_tokens": 64,
            "osl_tokens": 8}  # fmt: skip


def line(identifier: object, **changed: object) -> bytes:
    return json.dumps({"id": identifier, **SCENARIO, **changed}).encode() + b"\n"


class TestLines:
    def test_blank_ones_count_and_are_left_out(self) -> None:
        found = list(numbered_lines([b"\xef\xbb\xbf{}\r\n", b"  \n", b"{} \n", b"\n", b"[]"]))
        assert [(item.number, item.content) for item in found] == [(1, b"{}"), (3, b"{} "), (5, b"[]")]

    def test_a_mark_of_byte_order_is_one_on_the_first_line_alone(self) -> None:
        found = list(numbered_lines([b"\n", b"\xef\xbb\xbf{}\n"]))
        assert [(item.number, item.content) for item in found] == [(2, b"\xef\xbb\xbf{}")]


class TestAnswers:
    def test_one_a_line_in_order_with_their_ids(self) -> None:
        found = list(answered_lines(numbered_lines([line(7), line("x", model="nobody"), b"no json\n"])))
        assert [item.refused for item in found] == [False, True, True]
        documents = [json.loads(item.text) for item in found]
        assert [item.get("id") for item in documents] == [7, "x", None]
        assert documents[2]["error"]["message"]
        assert all("\n" not in item.text for item in found)

    def test_they_come_while_lines_still_do(self) -> None:
        def endless() -> Iterator[bytes]:
            while True:
                yield line(1)

        answers = answered_lines(numbered_lines(endless()))
        assert not next(answers).refused
        assert not next(answers).refused

    @pytest.mark.parametrize("content", [line(1).strip(), b"\xff\xfe no text", b'{"id": 2}'])
    def test_another_process_answers_with_the_same_bytes(self, content: bytes) -> None:
        (here,) = answered_lines([NumberedLine(4, content)])
        there = answer_request(json.dumps([4, None, content.decode("utf-8", "surrogateescape")]))
        assert (there[1:], there[0] == "1") == (here.text, here.refused)


class TestResume:
    @staticmethod
    def lines() -> Iterator[NumberedLine]:
        return numbered_lines([line(1), line("two"), line(3)])

    def test_it_goes_on_behind_what_was_answered(self) -> None:
        rest = unanswered_lines(self.lines(), answers=[b'{"id": 1}', b'{"id": "two"}'], where="x.partial")
        assert [json.loads(item.content)["id"] for item in rest] == [3]
        assert len(list(unanswered_lines(self.lines(), answers=[], where="x"))) == 3

    def test_answers_of_others_are_refused(self) -> None:
        with pytest.raises(FileError, match=r"x\.partial answers other scenarios: line 2 has another id"):
            unanswered_lines(self.lines(), answers=[b'{"id": 1}', b'{"id": 2}'], where="x.partial")
        with pytest.raises(FileError, match="x answers other scenarios [^:]"):
            unanswered_lines(self.lines(), answers=[b'{"id": 1}', b'{"id": "two"}', b'{"id": 3}', b"{}"], where="x")


class TestPublished:
    def test_an_error_is_predicted_over_published_and_a_topic_holds_the_mean(self) -> None:
        found = published("roofline")
        document = found.to_dict()
        rows = document["figures"]
        assert {row["topic"] for row in rows} == {"roofline"}
        for row in rows:
            assert row["error"] == pytest.approx(row["predicted"] / row["published"] - 1)
            assert row["is_off"] is (abs(row["error"]) > row["tolerance"] + 1e-12)
        (topic,) = document["topics"]
        assert topic["figures"] == len(rows)
        assert topic["mean"] == pytest.approx(sum(abs(row["error"]) for row in rows) / len(rows))
        assert found.chart().series[0].y[0] == pytest.approx(100 * topic["mean"])

    def test_every_figure_stands_in_the_text_with_its_source(self) -> None:
        found = published("roofline")
        text = found.to_text()
        for row in found.rows():
            assert text.count(row["name"]) >= 2
            assert row["source"] in text
        assert all(name in text for name in COLUMNS)

    def test_an_unknown_topic_is_refused(self) -> None:
        with pytest.raises(RoofcastError):
            published("no such topic")


@pytest.mark.parametrize(("field", "said"), [('"id": "a7", "batch_size": ', "a7"), ('"id": ', None)])
def test_a_line_with_too_long_a_number_keeps_its_identifier(field: str, said: str | None) -> None:
    found = simulate_line("{" + field + "9" * 150 + "}", number=1)
    assert found["id"] == said
    assert "100 digits" in found["error"]["message"]
