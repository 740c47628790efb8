"""A planned replica in the words of its engine: flags, the options file, the shell command that starts it.

The words stand in the launch profiles: vLLM's and SGLang's as their parsers take them [VllmTeam2026] [SglangTeam2025],
TensorRT-LLM's as its documentation writes them [TrtllmTeam2025].
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from simulator.planner.handoff import LaunchSettings
from simulator.reports.words.fields import filled_template
from simulator.specs.base import read_yaml
from simulator.specs.engine.launch import LaunchItem, RouterSpec


@cache
def templates(name: str) -> Mapping[str, Any]:
    """A file of this folder, by what its texts are for: ``manifests``, ``notes`` or ``scripts``."""
    return read_yaml(Path(__file__).with_name(f"{name}.yaml"))


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with every ``${name}`` filled in; an unknown name is a fault of the profile or file it is from."""
    return Template(text).substitute(values)


def script(name: str, values: Mapping[str, str]) -> str:
    """What stands under that name in ``scripts.yaml``, filled with ``values``."""
    return filled(templates("scripts")[name], values)


def note(name: str, values: Mapping[str, object] | None = None) -> str:
    """A text of ``notes.yaml`` with its values filled in, as those of the notes on answers are."""
    return filled_template(templates("notes")[name], values or {})


_SHELL = {"rank": '"$RANK"', "head": '"$HEAD"', "host": '"$(hostname -i)"'}


def speculation_items(item: LaunchSettings) -> list[LaunchItem]:
    """What makes the engine speculate as planned; nothing where it cannot, or the plan does not."""
    holds, found = item.conditions(), item.deployment.speculation
    method = item.launch.speculation.get(found.plan.method, ()) if found is not None else ()
    return [entry for entry in method if all(holds[name] for name in entry.when)]


def _items(item: LaunchSettings) -> list[LaunchItem]:
    """The flags and options whose conditions hold, those of speculation behind the others."""
    holds = item.conditions()
    own = [entry for entry in item.launch.flags if all(holds[name] for name in entry.when)]
    return [*own, *speculation_items(item)]


def flags(item: LaunchSettings, *, places: Mapping[str, str]) -> list[str]:
    """Flags as they are written in a shell; ``places`` says where a server finds its rank, the first one and itself."""
    values = {name: shlex.quote(value) for name, value in item.values().items()} | dict(places)
    return [filled(entry.flag, values) for entry in _items(item) if entry.flag]


def words(item: LaunchSettings, *, places: Mapping[str, str]) -> list[str]:
    """The command and its flags word by word, for what starts processes without a shell."""
    command = filled(item.launch.command, item.values())
    return [word for text in (command, *flags(item, places=places)) for word in shlex.split(text)]


def environment(item: LaunchSettings, *, places: Mapping[str, str]) -> dict[str, str]:
    """Variables of the engine's process."""
    holds, values = item.conditions(), {**item.values(), **places}
    entries = (entry for entry in item.launch.environment if all(holds[name] for name in entry.when))
    return {entry.name: filled(entry.value, values) for entry in entries}


def options_text(item: LaunchSettings) -> str:
    """The options file (YAML), empty for an engine without one: dotted paths as nested mappings, in their order."""
    lines: list[str] = []
    above: list[str] = []
    # A name may hold anything; JSON's texts are YAML's too.
    values = {**item.values(), "draft_model": json.dumps(item.draft_model)}
    for entry in _items(item):
        if not entry.option:
            continue
        *parents, leaf = entry.option.split(".")
        shared = 0
        while shared < min(len(parents), len(above)) and parents[shared] == above[shared]:
            shared += 1
        lines += [f"{'  ' * depth}{name}:" for depth, name in enumerate(parents) if depth >= shared]
        lines.append(f"{'  ' * len(parents)}{leaf}: {filled(entry.value, values)}")
        above = parents
    return "".join(f"{line}\n" for line in lines)


def command_text(name: str, parts: Sequence[str]) -> str:
    """A command with each of its parts on a line."""
    return " \\\n  ".join([name, *parts]) + "\n"


def shell_launch(item: LaunchSettings) -> str:
    """The commands that start one replica, on each of its servers where it spans several."""
    launch, several = item.launch, item.servers > 1
    parts = flags(item, places=_SHELL)
    lines = [f"export {name}={value}\n" for name, value in environment(item, places=_SHELL).items()]
    if several and not launch.join:
        lines.insert(
            0,
            f"# On each of {item.servers} servers: HEAD=address of the first, RANK=0 on it, 1 and up elsewhere.\n"
            ': "${HEAD:?}" "${RANK:?}"\n',
        )
        parts += [f'$([ "$RANK" = 0 ] || echo {flag})' for flag in launch.worker_flags]
    options = options_text(item)
    if options:
        lines.append(f"cat > {launch.options_file} <<'YAML'\n{options}YAML\n")
    values = item.values()
    command = filled(launch.command, {name: shlex.quote(value) for name, value in values.items()})
    if several and launch.join:
        command = f"{filled(launch.join, values)} {command}"
    return "".join(lines) + command_text(command, parts)


def _hosts(item: LaunchSettings) -> list[str]:
    """An address for every replica of a pool, its spares among them."""
    name = item.role.upper() or "REPLICA"
    return [f"{name}-{place}:{item.launch.port}" for place in range(1, item.replicas + item.spares + 1)]


def shell_router(router: RouterSpec, items: Sequence[LaunchSettings]) -> str:
    """What stands in front of all replicas, by their addresses: PREFILL-1, DECODE-1 or REPLICA-1 and up."""
    install = f"pip install {router.package}\n" if router.package else ""
    if router.config:
        values: dict[str, str] = {}
        for item in items:
            quoted = ", ".join(f'"{host}"' for host in _hosts(item))
            values |= {f"{item.role}_count": str(item.replicas + item.spares), f"{item.role}_hosts": quoted}
        written = f"cat > {router.config_file} <<'YAML'\n{filled(router.config, values)}YAML\n"
        return install + written + router.command + "\n"
    parts = [f"--host 0.0.0.0 --port {router.port}", *(router.pool_flags if len(items) > 1 else router.flags)]
    for item in items:
        flag, urls = router.url_flags[item.role], [f"http://{host}" for host in _hosts(item)]
        parts += [filled(flag, {"url": url}) for url in urls] if item.role else [filled(flag, {"urls": " ".join(urls)})]
    return install + command_text(router.command, parts)
