"""Options are read from a parser's source as the parser itself would take them."""

from __future__ import annotations

import pytest

from validation.engine_options import Option, cpp_options, python_options

CONFIG = """
from typing import Any, Literal
BlockSize = Literal[16, 32]
class CacheConfig:
    block_size: SkipValidation[BlockSize] = None
    share: float = 0.9
    prefix: bool | None = None
    dtype: str | Method = "auto"
    names: list[str] | None = None
class FrontendArgs:
    host: str | None = None
    port: int = 8000
"""
PARSER = """
CHOICES = ["a", "b"]
cache_kwargs = get_kwargs(CacheConfig)
frontend_kwargs = get_kwargs(FrontendArgs)
group.add_argument("--block-size", **cache_kwargs["block_size"])
group.add_argument("--share", **{**cache_kwargs["share"], "default": None})
group.add_argument("--prefix", **cache_kwargs["prefix"])
group.add_argument("--dtype", **cache_kwargs["dtype"])
group.add_argument("--names", **cache_kwargs["names"])
for key, value in frontend_kwargs.items():
    group.add_argument(f"--{key}", **value)
parser.add_argument("--size", "-s", type=int, default=1)
parser.add_argument("--kind", choices=CHOICES + add())
parser.add_argument("--mode", choices=CHOICES)
parser.add_argument("--on", action="store_true")
parser.add_argument(f"--{prefix}urls", nargs="+")
parser.add_argument(f"--{prefix}one", nargs=1, action="append")
parser.add_argument("model")
"""
UNIFIED = ("-u", "--kv", "-no-u", "--no-kv")
EXPECTED = {
    "--block-size": Option(values="1", choices=("16", "32")),
    "--share": Option(values="1", type="float"),
    "--prefix": Option(values="0"),
    "--no-prefix": Option(values="0"),
    "--dtype": Option(values="1"),
    "--names": Option(values="many"),
    "--host": Option(values="1"),
    "--port": Option(values="1", type="int"),
    "--size": Option(values="1", type="int"),
    "-s": Option(values="1", type="int"),
    "--kind": Option(values="1"),
    "--mode": Option(values="1", choices=("a", "b")),
    "--on": Option(values="0"),
    "--urls": Option(values="many"),
    "--one": Option(values="1"),
}


def test_python_parsers_are_read_without_running_them() -> None:
    assert python_options([CONFIG, PARSER]) == EXPECTED


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('{"-c", "--ctx-size"}, "N",\n string_format("size"),\n [](int value)', {"-c": "1", "--ctx-size": "1"}),
        ('{"-m", "--model"}, "FNAME",\n lora\n ? "a"\n : "b",\n [](x)', {"-m": "1", "--model": "1"}),
        ('{"-u", "--kv"},\n {"-no-u", "--no-kv"},\n "one buffer",\n [](bool on)', dict.fromkeys(UNIFIED, "0")),
    ],
)
def test_options_of_llama_cpp_take_a_value_where_one_is_named(source: str, expected: dict[str, str]) -> None:
    assert {name: option.values for name, option in cpp_options(source).items()} == expected
