"""Profiles of every kind by name, alias or path, the user's own before the built-in ones.

A profile's name is its file's stem, so that resolving a name opens one file. Built-in aliases and default servers
are listed in ``hardware_profiles/aliases.yaml`` (a test holds it to the profiles). A user's directory, given as
``profiles`` or by the environment variable ROOFCAST_PROFILES, has the same layout: ``*.yaml``, ``servers/``,
``prices/``, ``models/``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from stat import S_ISDIR
from typing import Any, Literal, TypeVar

from simulator.errors import FileError, Option, ProfileError, did_you_mean, plain_word
from simulator.specs.base import Spec, SpecT, read_yaml, validate

ProfileKind = Literal[
    "hardware",
    "servers",
    "prices",
    "ownership",
    "engines",
    "engines/launch",
    "calibration",
    "calibration/engines",
    "models",
]

PROFILES_VARIABLE = "ROOFCAST_PROFILES"
_INDEX_STEM = "aliases"
_SUFFIXES = (".yaml", ".yml")
# Drivers and price lists put the maker before the product: "NVIDIA H100 80GB HBM3", "Tesla T4".
_MAKERS = ("nvidia", "amd", "intel", "google", "aws", "huawei", "apple", "tesla", "geforce", "instinct")
_NOUNS = {
    "hardware": "accelerator",
    "servers": "server",
    "prices": "price list",
    "ownership": "ownership profile",
    "models": "model",
}


Found = TypeVar("Found")
_LOOKED_UP: ContextVar[dict[object, Any] | None] = ContextVar("looked up", default=None)


@contextmanager
def profiles_at_once() -> Iterator[None]:
    """Within, what was looked up of the profiles stays as it was first found: one question is answered from the files
    as they were when it began, and asks the system once for each."""
    if _LOOKED_UP.get() is not None:
        yield
        return
    token = _LOOKED_UP.set({})
    try:
        yield
    finally:
        _LOOKED_UP.reset(token)


def looked_up(key: object, look: Callable[[], Found]) -> Found:
    """What ``look`` finds, asked once for a key within ``profiles_at_once``."""
    known = _LOOKED_UP.get()
    if known is None:
        return look()
    if key not in known:
        known[key] = look()
    found: Found = known[key]
    return found


@lru_cache(maxsize=2)
def profile_root(kind: Literal["hardware_profiles", "model_profiles"]) -> Path:
    """The built-in profiles: packed into the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "_data" / kind, package.parent / kind):
        if candidate.is_dir():
            return candidate
    raise FileError(f"the built-in {kind} are missing next to {package}", hint="reinstall roofcast")


def profile_directories(kind: ProfileKind, *, profiles: str | Path | None = None) -> tuple[Path, ...]:
    """Where profiles of this kind are looked for, the user's directory first."""
    user = _user_directory(profiles)
    built_in = _built_in_directory(kind)
    if user is None:
        return (built_in,)
    return (user if kind == "hardware" else user / kind, built_in)


@lru_cache(maxsize=16)
def _built_in_directory(kind: ProfileKind) -> Path:
    if kind == "models":
        return profile_root("model_profiles")
    return profile_root("hardware_profiles") / ("" if kind == "hardware" else kind)


def _user_directory(profiles: str | Path | None) -> Path | None:
    given = profiles if profiles is not None else os.environ.get(PROFILES_VARIABLE) or None
    if given is None:
        return None
    directory = Path(os.path.expanduser(given))
    if not os.path.isdir(directory):
        origin = Option("profiles") if profiles is not None else PROFILES_VARIABLE
        raise FileError(f"{directory} is not a directory", field=origin)
    return directory


def list_profiles(kind: ProfileKind, *, profiles: str | Path | None = None) -> tuple[str, ...]:
    """Names of every profile of this kind, sorted."""
    return tuple(
        sorted({stem for root in profile_directories(kind, profiles=profiles) for stem in profile_files(root)})
    )


def find_profile(
    kind: ProfileKind, name: str, *, profiles: str | Path | None = None, built_in: bool = False
) -> Path | None:
    """The file of a name (also behind its maker's, of accelerators) or alias, or None; a user's names win, unless only
    built-in ones are asked for."""
    key = (kind, name, profiles, built_in)
    return looked_up(key, lambda: _find(kind, name, profiles=profiles, built_in=built_in))


def _find(kind: ProfileKind, name: str, *, profiles: str | Path | None, built_in: bool) -> Path | None:
    roots = profile_directories(kind, profiles=profiles)[-1 if built_in else 0 :]
    return _found(kind, name, roots, tuple(changed_ns(root) for root in roots))


@lru_cache(maxsize=4096)
def _found(kind: ProfileKind, name: str, roots: tuple[Path, ...], changed: tuple[int, ...]) -> Path | None:
    """Questions ask for the same few hundred names; ``changed`` retires what was found."""
    wanted = plain_word(name)
    found = _find_spelled(kind, wanted, roots=roots)
    maker, _, product = wanted.partition("-")
    if found is None and kind == "hardware" and maker in _MAKERS:
        return _find_spelled(kind, product, roots=roots)
    return found


def _find_spelled(kind: ProfileKind, wanted: str, *, roots: tuple[Path, ...]) -> Path | None:
    for root in roots:
        files = profile_files(root)
        if wanted in files:
            return files[wanted]
        alias = _aliases(kind, root=root, is_built_in=root == roots[-1]).get(wanted)
        if alias is not None:
            if kind == "engines":
                _check_copied(files[alias], wanted, roots=roots)
            return files[alias]
    return None


def _check_copied(path: Path, alias: str, *, roots: tuple[Path, ...]) -> None:
    """Refuse a spelling that a copy of another engine has kept: which of them would be meant?"""
    listed = [_aliases("engines", root=root, is_built_in=root == roots[-1]).get(alias) for root in roots]
    named = [alias for root in roots if alias in profile_files(root)]
    for other in {*listed, *named} - {None, path.stem.lower()}:
        raise ProfileError(
            f"{path}: {alias!r} is {other} too",
            field="stands_in_for",
            code="invalid_profile",
            hint=f"a copy leaves out `aliases` and `stands_in_for`; to replace {other}, call the file {other}.yaml",
        )


def profile_files(root: Path) -> Mapping[str, Path]:
    """Profile files of one directory by lower-case stem; read again when the directory changes."""
    try:
        return _files_cached(root, changed_ns(root))
    except OSError:
        return {}


def changed_ns(root: Path) -> int:
    """When files were last added to or removed from a directory [ns since the epoch]; 0 where there is none."""
    try:
        found = os.stat(root)
    except OSError:
        return 0
    return found.st_mtime_ns if S_ISDIR(found.st_mode) else 0


def profiles_changed_ns(kind: ProfileKind, *, profiles: str | Path | None = None) -> tuple[int, ...]:
    """``changed_ns`` of each directory of a kind."""
    return looked_up(
        ("changed", kind, profiles),
        lambda: tuple(changed_ns(root) for root in profile_directories(kind, profiles=profiles)),
    )


@lru_cache(maxsize=64)
def _files_cached(root: Path, modified_ns: int) -> Mapping[str, Path]:
    files = (root / name for name in sorted(os.listdir(root)) if name.endswith(_SUFFIXES))
    return {path.stem.lower(): path for path in files if path.stem != _INDEX_STEM}


def _aliases(kind: ProfileKind, *, root: Path, is_built_in: bool) -> Mapping[str, str]:
    """Alias -> stem: from the index for built-in hardware, from the profiles themselves for engines and a user's."""
    if is_built_in:
        if kind in ("hardware", "servers"):
            return profile_index(kind)
        if kind != "engines":
            return {}
    try:
        return _stated_aliases(root, changed_ns(root))
    except OSError:
        return {}


@lru_cache(maxsize=16)
def _stated_aliases(root: Path, modified_ns: int) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for stem, path in profile_files(root).items():
        data = read_yaml(path)
        listed = (*(data.get("aliases") or ()), *(data.get("stands_in_for") or ()))
        found.update({plain_word(str(alias)): stem for alias in listed})
    return found


def profile_index(section: str) -> Mapping[str, str]:
    """One section of the built-in index: aliases of ``hardware`` and ``servers``, ``default_servers`` and
    ``only_when_named``."""
    return _index()[section]


@lru_cache(maxsize=1)
def _index() -> Mapping[str, Mapping[str, str]]:
    read = read_yaml(profile_root("hardware_profiles") / f"{_INDEX_STEM}.yaml")
    return {name: {str(key): str(value) for key, value in section.items()} for name, section in read.items()}


def load_spec(
    spec_class: type[SpecT], name_or_path: str | Path, *, kind: ProfileKind, profiles: str | Path | None = None
) -> SpecT:
    """Load one profile by name, alias or path.

    Raises ProfileError: no such profile (with the closest names), or an invalid one.
    Raises FileError: a path was given and cannot be read.
    """
    key = (spec_class, name_or_path, kind, profiles)
    return looked_up(key, lambda: _load_named(spec_class, name_or_path, kind=kind, profiles=profiles))


def _load_named(
    spec_class: type[SpecT], name_or_path: str | Path, *, kind: ProfileKind, profiles: str | Path | None
) -> SpecT:
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.lower().endswith(_SUFFIXES) or os.sep in text:
        return load_file(spec_class, Path(os.path.expanduser(text)), profiles=profiles)
    path = find_profile(kind, text, profiles=profiles)
    if path is None:
        noun = _NOUNS.get(kind, f"{kind} profile")
        raise ProfileError(f"unknown {noun} {text!r}", field=kind, hint=_nearest(kind, text, profiles=profiles))
    spec = load_file(spec_class, path, profiles=profiles)
    named = getattr(spec, "name", path.stem)
    if not _is_of(path, named):
        raise ProfileError(
            f"{path}: a profile carries its file's name, {path.stem!r}, found {named!r}",
            field="name",
            code="invalid_profile",
        )
    return spec


@lru_cache(maxsize=512)
def _is_of(path: Path, name: str) -> bool:
    return plain_word(name) == path.stem.lower()


def _nearest(kind: ProfileKind, text: str, *, profiles: str | Path | None) -> str:
    roots = profile_directories(kind, profiles=profiles)
    aliases = (alias for root in roots for alias in _aliases(kind, root=root, is_built_in=root == roots[-1]))
    return did_you_mean(plain_word(text), [*list_profiles(kind, profiles=profiles), *aliases])


def load_file(spec_class: type[SpecT], path: Path, *, profiles: str | Path | None = None) -> SpecT:
    """One profile from its file, checked once per change of the file; what it names may be in ``profiles``."""
    try:
        modified_ns = os.stat(path).st_mtime_ns
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    spec = _load_cached(spec_class, path, modified_ns, profiles)
    assert isinstance(spec, spec_class)
    return spec


@lru_cache(maxsize=512)
def _load_cached(spec_class: type[Spec], path: Path, modified_ns: int, profiles: str | Path | None) -> Spec:
    """Specs are frozen, so one object may serve everybody; ``modified_ns`` retires it when the file changes."""
    return validate(spec_class, read_yaml(path), where=str(path), profile=True, profiles=profiles)
