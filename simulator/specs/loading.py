"""Accelerators, servers and price lists by name, alias or path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simulator.errors import ProfileError, said_of
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec
from simulator.specs.money.prices import PriceProfile
from simulator.specs.profiles import (
    find_profile,
    list_profiles,
    load_file,
    load_spec,
    profile_directories,
    profile_files,
    profile_index,
)
from simulator.specs.spellings import plain_word


def load_hardware(
    name_or_path: str | Path, *, profiles: str | Path | None = None, field: str = "hardware"
) -> AcceleratorSpec:
    """An accelerator by name, alias (``h100``) or path to a YAML file.

    Raises ProfileError: there is none of that name, said of ``field``.
    """
    with said_of({"hardware": field}):
        return load_spec(AcceleratorSpec, name_or_path, kind="hardware", profiles=profiles)


def list_hardware(*, profiles: str | Path | None = None) -> tuple[str, ...]:
    """Names of all accelerators, sorted, without aliases."""
    return list_profiles("hardware", profiles=profiles)


def unnamed_hardware(*, profiles: str | Path | None = None) -> dict[str, str]:
    """Accelerators that a search leaves out unless they are named, each with ``only_when_named`` as the reason.

    The built-in ones stand in the index, so that a search opens no profile that it does not use; a profile of that name
    in a user's own directory is searched like any other of theirs.
    """
    user = {stem for root in profile_directories("hardware", profiles=profiles)[:-1] for stem in profile_files(root)}
    return {name: reason for name, reason in profile_index("only_when_named").items() if name not in user}


def list_offered_hardware(*, profiles: str | Path | None = None) -> tuple[str, ...]:
    """Names that a search over all accelerators tries."""
    unnamed = unnamed_hardware(profiles=profiles)
    return tuple(name for name in list_hardware(profiles=profiles) if name not in unnamed)


def load_server(name_or_path: str | Path, *, profiles: str | Path | None = None) -> ServerSpec:
    """A server by name, alias or path."""
    return load_spec(ServerSpec, name_or_path, kind="servers", profiles=profiles)


def load_prices(name_or_path: str | Path = "default", *, profiles: str | Path | None = None) -> PriceProfile:
    """A price list by name or path."""
    return load_spec(PriceProfile, name_or_path, kind="prices", profiles=profiles)


def default_server_for(hardware: str, *, profiles: str | Path | None = None) -> ServerSpec:
    """The server an accelerator is planned in: the user's first one that lists it, else the built-in default."""
    path = find_profile("hardware", hardware, profiles=profiles)
    accelerator = path.stem.lower() if path is not None else plain_word(hardware)
    for server in _user_servers(profiles):
        if plain_word(server.accelerator) == accelerator:
            return server
    name = profile_index("default_servers").get(accelerator)
    if name is None:
        raise ProfileError(
            f"no server holds the accelerator {hardware!r}",
            field="servers",
            hint=f"add one under servers/ of your profile directory with accelerator: {accelerator}",
        )
    return load_server(name, profiles=profiles)


def _user_servers(profiles: str | Path | None) -> Iterator[ServerSpec]:
    for root in profile_directories("servers", profiles=profiles)[:-1]:
        for path in profile_files(root).values():
            yield load_file(ServerSpec, path)
