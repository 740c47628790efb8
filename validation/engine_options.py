"""Options of serving engines as their releases parse them: pinned lists that launch commands are tested against.

``python -m validation.engine_options vllm-0.15.1 SOURCE...`` reads the sources of a release (an unpacked wheel's
``arg_utils.py``, ``server_args.py``, ``arg.cpp`` and the like) without running them, and writes
``tests/data/engine_options/NAME.json``: by option, how many values it takes ("0", "1", "many"), their type and the
allowed ones, where the parser says so.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "engine_options"
_FLAGS = ("store_true", "store_false", "BooleanOptionalAction")
_TYPES = ("int", "float")
_SPELLINGS = r'\{((?:\s*"-[-\w]+"\s*,?)+)\},'
# Behind an option that takes a value stand the value's name and the description, else the description alone.
_CPP = re.compile(rf'{_SPELLINGS}(?:\s*{_SPELLINGS})?(?:\s*("[^"]*"),\s*+(?!\[))?')


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What one option takes; ``type`` is empty for text, ``choices`` for anything."""

    values: str
    type: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """Names of the sources: lists and unions of texts, and the annotated fields of classes."""

    texts: Mapping[str, tuple[str, ...]]
    fields: Mapping[str, Mapping[str, ast.expr]]


def _texts(node: ast.expr, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """All texts of a list, a Literal or a name of one; numbers as texts."""
    match node:
        case ast.Constant(value=str() | int() as value) if not isinstance(value, bool):
            return (str(value),)
        case ast.Name(id=name):
            return known.get(name, ())
        case ast.Attribute(attr=name):
            return known.get(name, ())
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return tuple(text for part in parts for text in _texts(part, known))
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            return _texts(inner, known)
    return ()


def _names(trees: Sequence[ast.Module]) -> _Names:
    texts: dict[str, tuple[str, ...]] = {}
    fields: dict[str, dict[str, ast.expr]] = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if found := _texts(value, texts):
                texts[name] = found
            case ast.ClassDef(name=name, body=body):
                fields[name] = {
                    item.target.id: item.annotation
                    for item in body
                    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                }
    return _Names(texts=texts, fields=fields)


def _annotated(annotation: ast.expr, names: _Names) -> tuple[Option, bool]:
    """What a configuration's field takes, and whether it is a flag that ``--no-`` turns off."""
    parts = [part.slice if _is_generic(part, "SkipValidation") else part for part in _united(annotation)]  # type: ignore[attr-defined]
    words = {part.id for part in parts if isinstance(part, ast.Name)}
    choices = tuple(dict.fromkeys(text for part in parts for text in _texts(part, names.texts)))
    if choices and not words & {"str"}:
        return Option(values="1", choices=choices), False
    if words & {"bool"} and not words & {"str", "int", "float"}:
        return Option(values="0"), True
    if any(_is_generic(part, "list") for part in parts):
        return Option(values="many"), False
    number = next((word for word in _TYPES if word in words), "")
    return Option(values="1", type="" if "str" in words else number), False


def _united(annotation: ast.expr) -> list[ast.expr]:
    """The members of ``A | B | C``."""
    if isinstance(annotation, ast.BinOp):
        return [*_united(annotation.left), *_united(annotation.right)]
    return [annotation]


def _is_generic(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name


def _spelled(node: ast.expr) -> str:
    """An option's name; a prefix that may be put before it is empty."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _keyword_option(call: ast.Call, names: _Names) -> tuple[Option, bool]:
    given = {item.arg: item.value for item in call.keywords if item.arg}
    action = given.get("action")
    word = action.value if isinstance(action, ast.Constant) else getattr(action, "attr", getattr(action, "id", ""))
    if word in _FLAGS:
        return Option(values="0"), word == "BooleanOptionalAction"
    kind = getattr(given.get("type"), "id", "")
    many = "nargs" in given and getattr(given["nargs"], "value", None) != 1
    choices = _texts(given["choices"], names.texts) if "choices" in given else ()
    return Option(values="many" if many else "1", type=kind if kind in _TYPES else "", choices=choices), False


def _tables(tree: ast.Module) -> dict[str, str]:
    """The configuration that each table of keywords of a module was made from."""
    found = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=table)],
                value=ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=configuration)]),
            ):
                found[table] = configuration
    return found


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            yield node


def _table_field(node: ast.expr) -> tuple[str, str]:
    """``table["field"]``, alone or unpacked into a mapping that changes its default."""
    match node:
        case ast.Dict(values=[first, *_]):
            return _table_field(first)
        case ast.Subscript(value=ast.Name(id=table), slice=ast.Constant(value=str() as field)):
            return table, field
    return "", ""


def _option(call: ast.Call, tables: Mapping[str, str], names: _Names) -> tuple[Option, bool]:
    for table, field in (_table_field(item.value) for item in call.keywords if item.arg is None):
        annotation = names.fields.get(tables.get(table, ""), {}).get(field)
        return (Option(values="1"), False) if annotation is None else _annotated(annotation, names)
    return _keyword_option(call, names)


def _whole_tables(tree: ast.Module, tables: Mapping[str, str]) -> Iterator[str]:
    """Configurations of which every field is an option, because a loop adds the whole table of keywords."""
    for node in ast.walk(tree):
        match node:
            case ast.For(iter=ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="items"))) if table in tables:
                yield tables[table]


def python_options(sources: Sequence[str]) -> dict[str, Option]:
    """Options of every ``add_argument`` in the sources."""
    trees = [ast.parse(source) for source in sources]
    names, found = _names(trees), {}
    for tree in trees:
        tables = _tables(tree)
        added = [
            (f"--{field.replace('_', '-')}", _annotated(annotation, names))
            for configuration in _whole_tables(tree, tables)
            for field, annotation in names.fields[configuration].items()
        ]
        for call in _calls(tree):
            added += [(name, _option(call, tables, names)) for name in map(_spelled, call.args) if len(name) > 1]
        for name, (option, turns_off) in added:
            found[name] = option
            if turns_off and name.startswith("--"):
                found[f"--no-{name[2:]}"] = option
    return {name: option for name, option in found.items() if name.strip("-") and name.startswith("-")}


def cpp_options(source: str) -> dict[str, Option]:
    """Options of llama.cpp: spellings in braces, and the name of a value behind them where they take one."""
    found = {}
    for spelled, negated, value in _CPP.findall(source):
        for name in re.findall(r'"(-[-\w]+)"', spelled + negated):
            found[name] = Option(values="1" if value else "0")
    return found


def main() -> None:
    """Read a release and write its list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="engine and release: vllm-0.15.1")
    parser.add_argument("sources", nargs="+", type=Path)
    asked = parser.parse_args()
    texts = [path.read_text(encoding="utf-8") for path in asked.sources]
    is_cpp = all(path.suffix == ".cpp" for path in asked.sources)
    found = cpp_options("\n".join(texts)) if is_cpp else python_options(texts)
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(_said(option))}" for name, option in sorted(found.items()))
    (FOLDER / f"{asked.name}.json").write_text("{\n" + lines + "\n}\n", encoding="utf-8")
    print(f"{asked.name}: {len(found)} options")


def _said(option: Option) -> dict[str, object]:
    """What the parser says of an option."""
    return {key: value for key, value in asdict(option).items() if value}


if __name__ == "__main__":
    main()
