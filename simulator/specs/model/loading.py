"""Models by name, Hugging Face id or path: the user's own profiles, the built-in ones, or any config.json.

A built-in profile is one YAML file named after the model; ``model_profiles/aliases.yaml`` lists every other spelling
(ids of all checkpoints with the same configuration), so that resolving a name opens two small files. A quantized
checkpoint without a profile is its base model in the format that its name says.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from math import log
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveFloat

from simulator.errors import FileError, ProfileError, RoofcastError, did_you_mean, plain_word
from simulator.specs.base import Spec, read_json, read_yaml, validate
from simulator.specs.huggingface.registry import read_config
from simulator.specs.model.architecture import ModelSpec, QuantizationSpec
from simulator.specs.profiles import profile_directories, profile_files, profile_root

INDEX_STEM = "aliases"
CONFIG_FILE = "config.json"
_SUFFIXES = (".yaml", ".yml")


class PublishedSize(Spec):
    """What the authors say about the size [parameters]; ``rounded_to`` is the unit of a round figure's last digit.

    ``active_parameters`` are those that one token uses, for mixtures of experts; ``active_excludes`` what that figure
    leaves out: the input embedding table, or that and the LM head.
    """

    parameters: PositiveFloat
    active_parameters: PositiveFloat | None = None
    rounded_to: PositiveFloat | None = None
    active_rounded_to: PositiveFloat | None = None
    active_excludes: Literal["embedding", "embedding_and_head"] | None = None
    source: str


class ModelProfile(Spec):
    """One YAML file: a configuration in Hugging Face's field names, with where it comes from.

    ``date`` is the day of release, or the day on which a newer configuration was read.
    ``aliases`` are other ids whose configuration costs the same. ``top_p`` as generation_config.json has it.
    ``quantization`` is for checkpoints that are
    quantized although their config.json does not say so; ``note`` says how that is known.
    """

    name: str
    huggingface_id: str | None = None
    aliases: tuple[str, ...] = ()
    source: str
    date: str
    published: PublishedSize | None = None
    top_p: float = Field(default=1.0, gt=0, le=1)
    config: Mapping[str, Any] = Field(min_length=1)
    quantization: QuantizationSpec | None = None
    note: str = ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every name this profile answers to, its own first."""
        ids = (self.huggingface_id,) if self.huggingface_id else ()
        return (self.name, *ids, *self.aliases)

    def spelled(self, wanted: str) -> str:
        """The spelling that ``wanted`` is in any case; of another publisher's or none the id that ends in it."""
        word = plain_word(wanted)
        ended = (name for name in self.spellings if _tail(name) == _tail(word))
        return next((name for name in self.spellings if plain_word(name) == word), None) or next(ended)

    def checkpoint(self, spelling: str) -> str:
        """The Hugging Face id that one of the spellings stands for; the spelling itself where none was published.

        A name without a publisher is the id that ends in it, then one that begins so behind the publisher
        (``llama-3.3-70b``), then the profile's own. The profile's name is what people serve: of a base model the one
        that its maker tuned to answer.
        """
        own = self.huggingface_id or spelling
        if "/" in spelling or spelling == self.name:
            return spelling if "/" in spelling else self._tuned(own)
        ids = [name for name in self.spellings if "/" in name]
        bare = _bare(spelling)
        ended = (name for name in ids if _bare(name) == bare)
        begun = (name for name in ids if _bare(name).startswith(bare))
        return next(ended, next(begun, own))

    def _tuned(self, own: str) -> str:
        """The maker's id of the same name with a word for tuning in it; ``own`` where there is none."""
        untuned = _words(own) - _UNTUNED
        if not untuned.isdisjoint(_TUNED):
            return own
        tuned = (name for name in self.aliases if any(_words(name) - _UNTUNED == untuned | {word} for word in _TUNED))
        return next(tuned, own)


COPYISTS = ("unsloth/", "redhatai/", "neuralmagic/", "nousresearch/", "lmsys/")
"""Publishers whose repositories hold others' models under the same name."""

_TUNED = ("instruct", "it", "chat")
_UNTUNED = {"base", "meta"}


def _words(model_id: str) -> set[str]:
    """Of an id, with its publisher's name as one of them."""
    publisher, _, bare = model_id.lower().partition("/")
    return {publisher, *bare.split("-")}


def _tail(name: str) -> str:
    """What stands behind the publisher."""
    return plain_word(name).rpartition("/")[2]


def _bare(name: str) -> str:
    """Letters and digits behind the publisher."""
    return "".join(character for character in _tail(name) if character.isalnum())


def load_model(name_or_path: str | Path, *, profiles: str | Path | None = None) -> ModelSpec:
    """A model by profile name or Hugging Face id (any case), or from a config.json, its folder or a profile file.

    Raises ProfileError: unknown name (with the closest ones) or an invalid profile.
    Raises FileError: a path that cannot be read.
    Raises RoofcastError: a configuration that is not understood in full; names the field.
    """
    text = str(name_or_path)
    if not text.strip():
        raise ProfileError("a name, a Hugging Face id or a path is needed, got an empty text", field="model")
    if isinstance(name_or_path, Path) or _is_path(text):
        return _from_path(Path(os.path.expanduser(text)))
    if _find(text, profiles=profiles) is None and os.path.exists(text):
        return _from_path(Path(text))
    return named_model(text, profiles=profiles)


def named_model(text: str, *, profiles: str | Path | None = None) -> ModelSpec:
    """The model of a name or id, for texts that must never become a path."""
    path = _find(text, profiles=profiles)
    if path is not None:
        return _from_profile(path, path.stat().st_mtime_ns, text)
    quantized = _named_after_its_base(text, profiles=profiles)
    if quantized is not None:
        return quantized
    known = [*list_models(profiles=profiles), *_index()]
    close = did_you_mean(plain_word(text), known, otherwise="no built-in name is close.")
    if any(word in text.lower() for word in ("whisper", "audio")):
        close = "of models that hear, Qwen2.5-Omni and Qwen3-Omni are priced, Whisper's cross attention is not."
    raise ProfileError(
        f"unknown model {text!r}: not a profile name, not a known Hugging Face id, not a file or folder",
        field="model",
        hint=f"{close} For any other give the path of its config.json, or of the folder that holds it",
    )


def list_models(*, profiles: str | Path | None = None) -> tuple[str, ...]:
    """Names of all model profiles, sorted, without aliases."""
    roots = profile_directories("models", profiles=profiles)
    return tuple(sorted({stem for root in roots for stem in _stems(root)}))


def nearest_model(model: ModelSpec) -> str:
    """The built-in model that one of somebody's own stands for, else the nearest in width and depth, of its type where
    there is one."""

    def apart(other: tuple[str, str, int, int]) -> tuple[bool, bool, float]:
        name, model_type, width, depth = other
        ratios = (width / model.hidden_size, depth / model.num_hidden_layers)
        return name != model.name, model_type != model.model_type, sum(abs(log(ratio)) for ratio in ratios)

    return min(_sizes(list_models()), key=apart)[0]


@lru_cache(maxsize=1)
def _sizes(names: tuple[str, ...]) -> tuple[tuple[str, str, int, int], ...]:
    """Name, type, width and depth of each: all are read for them, which takes half a second."""
    models = {name: load_model(name) for name in names}
    return tuple((name, one.model_type, one.hidden_size, one.num_hidden_layers) for name, one in models.items())


def model_source(name: str, *, profiles: str | Path | None = None) -> str:
    """Where a model profile's configuration comes from, and its date; empty for what is no profile."""
    path = _find(name, profiles=profiles)
    if path is None:
        path = _base_of(name, profiles=profiles)
    if path is None:
        return ""
    profile = read_profile(path)
    return f"{profile.source}, {profile.date}"


def model_spellings(name: str, *, profiles: str | Path | None = None) -> tuple[str, ...]:
    """Every other name that a model profile answers to; empty for what is no profile."""
    path = _find(name, profiles=profiles)
    return () if path is None else read_profile(path).spellings[1:]


def read_profile(path: str | Path) -> ModelProfile:
    """One profile file before its configuration is interpreted."""
    profile = validate(ModelProfile, read_yaml(path), where=str(path), profile=True)
    stem = Path(path).stem
    if plain_word(profile.name) != plain_word(stem):
        message = f"{path}: a profile carries its file's name, {stem!r}, found {profile.name!r}"
        raise ProfileError(message, field="name", code="invalid_profile")
    return profile


def _is_path(text: str) -> bool:
    """Spelled as a path: absolute, relative with a dot, in the home directory, or with a file's suffix."""
    lowered = text.lower()
    return text.startswith((os.sep, ".", "~")) or lowered.endswith((".json", *_SUFFIXES))


def _from_path(path: Path) -> ModelSpec:
    if os.path.isdir(path):
        inside = path / CONFIG_FILE
        if not os.path.isfile(inside):
            raise FileError(f"{path} holds no {CONFIG_FILE}", field="model", hint="give the folder of a checkpoint")
        path = inside
    if not os.path.isfile(path):
        raise FileError(f"{path} does not exist", field="model", hint="give a config.json, its folder or a model name")
    if path.suffix.lower() in _SUFFIXES:
        return _from_profile(path, path.stat().st_mtime_ns, path.stem)
    config = read_json(path)
    named = config.get("_name_or_path")
    folder = path.resolve().parent.name if path.name == CONFIG_FILE else path.stem
    return read_config(config, name=named if isinstance(named, str) and named else folder)


@lru_cache(maxsize=256)
def _from_profile(path: Path, modified_ns: int, wanted: str) -> ModelSpec:
    """The profile under one of its spellings; ``modified_ns`` retires what is kept when the file changes."""
    profile = read_profile(path)
    name = profile.spelled(wanted)
    try:
        spec = read_config(profile.config, name=name)
    except RoofcastError as error:
        raise ProfileError(
            f"{error.message} in {path.name}", field=f"config.{error.field}", code=error.code, hint=error.hint
        ) from None
    quantization = profile.quantization or spec.quantization
    notes = (*spec.notes, profile.note) if profile.note else spec.notes
    names = {"profile": profile.name, "checkpoint": profile.checkpoint(name)}
    return spec.model_copy(update={**names, "top_p": profile.top_p, "quantization": quantization, "notes": notes})


def _find(text: str, *, profiles: str | Path | None) -> Path | None:
    wanted = plain_word(text)
    roots = profile_directories("models", profiles=profiles)
    for root in roots[:-1]:
        for stem, path in _stems(root).items():
            if wanted == stem or wanted in {plain_word(name) for name in read_profile(path).spellings}:
                return path
    # No name of a profile is another's spelling, so that the index is read for other spellings alone.
    built_in = roots[-1] / f"{wanted}.yaml"
    if os.sep not in wanted and wanted != INDEX_STEM and os.path.isfile(built_in):
        return built_in
    if wanted.startswith(COPYISTS):
        wanted = _tail(wanted)
    named = _index().get(wanted) or _tails().get(wanted)
    return None if named is None else roots[-1] / f"{named}.yaml"


@lru_cache(maxsize=1)
def _index() -> Mapping[str, str]:
    """Other spelling -> profile name, for the built-in profiles."""
    return {str(alias): str(stem) for alias, stem in read_yaml(profile_root("model_profiles") / "aliases.yaml").items()}


@lru_cache(maxsize=1)
def _tails() -> Mapping[str, str]:
    """Id without its publisher -> profile name, where one profile alone has such an id."""
    named: dict[str, set[str]] = {}
    for alias, stem in _index().items():
        named.setdefault(_tail(alias), set()).add(stem)
    return {tail: stems.pop() for tail, stems in named.items() if len(stems) == 1}


def _named_after_its_base(text: str, *, profiles: str | Path | None) -> ModelSpec | None:
    """A quantized checkpoint without a profile: its base model in the format that its name says."""
    base = _base_of(text, profiles=profiles)
    if base is None:
        return None
    from simulator.specs.model.checkpoints import named_checkpoint, quantized_as_named

    checkpoint = named_checkpoint(text)
    assert checkpoint is not None
    return quantized_as_named(_from_profile(base, base.stat().st_mtime_ns, base.stem), checkpoint=checkpoint)


def _base_of(text: str, *, profiles: str | Path | None) -> Path | None:
    """The base model's profile: by the same publisher, by its own name, by an id that one model has."""
    from simulator.specs.model.checkpoints import named_checkpoint

    checkpoint = named_checkpoint(text)
    if checkpoint is None:
        return None
    for base in checkpoint.bases:
        path = _find(base, profiles=profiles)
        if path is not None:
            return path
    return None


def _stems(root: Path) -> Mapping[str, Path]:
    """Profile files of one directory as questions spell them."""
    return {plain_word(stem): path for stem, path in profile_files(root).items()}


@lru_cache(maxsize=1024)
def published_unquantized(model_id: str, *, method: str) -> tuple[str, tuple[str, ...] | None]:
    """The first listed checkpoint of a model's weights in ``method`` that has a profile, and the roles that it keeps
    unquantized: None where roles have formats of their own; ("", ()) where there is no such checkpoint."""
    from simulator.specs.model.checkpoints import published_checkpoints

    wanted = plain_word(model_id)
    for item in published_checkpoints():
        if plain_word(item.base) == wanted and item.format.method == method and item.source == "profile":
            found = load_model(item.id).quantization
            return item.id, () if found is None else None if found.roles else found.unquantized
    return "", ()
