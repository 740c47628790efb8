"""Bits per weight, resolution order, contradictions."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.formats.schemes import multiplied_dtypes, on_chip
from simulator.operators.formats.tensor_formats import ROLES, precision_plan
from simulator.operators.transformer import operator_list, stored_bytes
from simulator.operators.work import GemmShape, decode_step
from simulator.reports.words.fields import note_texts
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.architecture import ModelSpec, QuantizationSpec
from simulator.specs.model.checkpoints import published_checkpoints
from simulator.specs.model.loading import list_models, load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec
from tests.operators.operator_models import LLAMA_31_8B


def quantised(
    weights: Dtype, activations: Dtype, *, method: str, group: int | None = None, kept: tuple[str, ...] = ("lm_head",)
) -> ModelSpec:
    quantization = QuantizationSpec(
        method=method, weights=weights, activations=activations, group_size=group, unquantized=kept
    )
    return LLAMA_31_8B.model_copy(update={"quantization": quantization})


@pytest.mark.parametrize(
    ("scheme", "name", "weight_bits", "math", "quantises"),
    [
        ("fp8", "fp8", 8, Dtype.FP8, True),
        ("fp8-block", "fp8_block", 8 + 32 / 16384, Dtype.FP8, True),
        ("gptq-g128", "w4a16", 4.125, Dtype.BF16, False),
        ("gptq", "w4a16", 4, Dtype.BF16, False),
        ("gptq-3bit-g1024", "w3a16", 3 + 16 / 1024, Dtype.BF16, False),
        ("awq", "w4a16", 4 + 20 / 128, Dtype.BF16, False),
        ("AWQ-g64", "w4a16", 4 + 20 / 64, Dtype.BF16, False),
        ("rtn-8bit", "w8a16", 8, Dtype.BF16, False),
        ("nvfp4", "nvfp4", 4.5, Dtype.FP4, True),
        ("mxfp4", "mxfp4", 4.25, Dtype.BF16, False),
        ("smoothquant-o3", "int8", 8, Dtype.INT8, False),
        ("llm.int8", "llm_int8", 8, Dtype.INT8, False),
        ("nf4", "nf4", 4.127, Dtype.BF16, False),
        ("bitnet", "w1.58a8", 2, Dtype.INT8, True),
    ],
)
def test_bits_of_schemes(scheme: str, name: str, weight_bits: float, math: Dtype, quantises: bool) -> None:
    product = precision_plan(LLAMA_31_8B, PrecisionSpec(scheme=scheme)).format_for("mlp")
    assert product.name == name
    assert product.weight_bits == pytest.approx(weight_bits, abs=1e-4)
    assert product.math is math
    assert product.quantises_activations is quantises


@pytest.mark.parametrize(
    ("weights", "activations", "name"),
    [
        (None, None, "bf16"),
        ("fp16", None, "fp16"),
        ("fp32", None, "fp32"),
        ("tf32", None, "tf32"),
        ("fp8", None, "fp8"),
        ("fp8", "bf16", "w8a16"),
        ("int8", None, "int8"),
        ("int8", "fp16", "w8a16"),
        ("int4", None, "w4a16"),
        ("int4", "fp8", "w4a8"),
        ("int4", "int4", "int4"),
        ("fp4", None, "nvfp4"),
        ("fp4", "bf16", "mxfp4"),
    ],
)
def test_pairs_decide_the_format(weights: str | None, activations: str | None, name: str) -> None:
    precision = PrecisionSpec(
        weights=None if weights is None else Dtype(weights),
        activations=None if activations is None else Dtype(activations),
    )
    assert precision_plan(LLAMA_31_8B, precision).format_for("attention").name == name


@pytest.mark.parametrize(
    ("precision", "field", "match"),
    [
        (PrecisionSpec(scheme="gptqq"), "precision.scheme", "did you mean gptq"),
        (PrecisionSpec(scheme="awq", weights=Dtype.FP8), "precision.weights", "int4"),
        (PrecisionSpec(scheme="nvfp4", activations=Dtype.BF16), "precision.activations", "fp4"),
        (PrecisionSpec(weights=Dtype.BF16, activations=Dtype.FP8), "precision.activations", "no kernel"),
        (PrecisionSpec(weights=Dtype.INT8, activations=Dtype.FP8), "precision.activations", "no kernel"),
        (PrecisionSpec(weights=Dtype.INT1), "precision.weights", "no kernel"),
        (PrecisionSpec(kv_cache=Dtype.FP6), "precision.kv_cache", "allowed"),
    ],
)
def test_contradictions_are_refused(precision: PrecisionSpec, field: str, match: str) -> None:
    with pytest.raises(RoofcastError, match=match) as refusal:
        precision_plan(LLAMA_31_8B, precision)
    assert refusal.value.field == field


def test_checkpoint_decides_when_nothing_is_asked_for() -> None:
    model = quantised(Dtype.FP8, Dtype.FP8, method="fp8_block", group=128)
    plan = precision_plan(model, PrecisionSpec())
    assert plan.format_for("mlp").name == "fp8_block"
    assert plan.kv_dtype is Dtype.BF16
    assert any("quantization_config" in note for note in note_texts(plan.assumptions))
    assert precision_plan(model, PrecisionSpec(weights=Dtype.FP8)).format_for("mlp").name == "fp8_block"
    assert precision_plan(model, PrecisionSpec(weights=Dtype.BF16)).format_for("mlp").name == "bf16"


def test_checkpoint_keeps_what_it_keeps() -> None:
    """gpt-oss stores its experts in mxfp4 and everything else in bf16."""
    kept = ("attention", "mlp", "shared_expert", "lm_head", "mixer")
    plan = precision_plan(quantised(Dtype.FP4, Dtype.BF16, method="mxfp4", group=32, kept=kept), PrecisionSpec())
    assert {role for role in ROLES if plan.format_for(role).name == "mxfp4"} == {"experts"}
    # Asked for by name it is the same checkpoint; another format is one that somebody else would have to make.
    model = quantised(Dtype.FP4, Dtype.BF16, method="mxfp4", group=32, kept=kept)
    named = precision_plan(model, PrecisionSpec(scheme="mxfp4"))
    assert [named.format_for(role) for role in ROLES] == [plan.format_for(role) for role in ROLES]
    assert precision_plan(model, PrecisionSpec(scheme="fp8")).format_for("attention").name == "fp8"


def test_head_router_and_embedding_stay_sixteen_bit() -> None:
    plan = precision_plan(LLAMA_31_8B, PrecisionSpec(scheme="gptq-g128"))
    assert {plan.format_for(role).name for role in ("lm_head", "router", "embedding")} == {"bf16"}
    with pytest.raises(RoofcastError, match="no role"):
        plan.format_for("attn")


def test_fp32_checkpoints_run_in_sixteen_bit_unless_asked() -> None:
    model = LLAMA_31_8B.model_copy(update={"dtype": Dtype.FP32})
    plan = precision_plan(model, PrecisionSpec())
    assert (plan.weights, plan.activation_bytes, plan.kv_bytes) == (Dtype.BF16, 2, 2)
    wide = precision_plan(model, PrecisionSpec(weights=Dtype.FP32))
    assert (wide.weights, wide.activation_bytes, wide.kv_bytes) == (Dtype.FP32, 4, 4)


def test_stored_weights_of_a_four_bit_llama() -> None:
    """Llama-3.1-8B at group 128: 6.98e9 block weights at 4.125 bits; embedding, head and norms at 16."""
    rows = operator_list(
        LLAMA_31_8B,
        parallelism=ParallelismSpec(),
        plan=precision_plan(LLAMA_31_8B, PrecisionSpec(scheme="gptq-g128")),
        step=decode_step(sequences=1, context=1),
    )
    blocks = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    assert stored_bytes(rows) == blocks * 4.125 / 8 + 2 * (2 * 128256 * 4096 + 65 * 4096)


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("Qwen/Qwen3.5-397B-A17B", "fp8_block"),
        ("zai-org/GLM-5", "fp8_block"),
        ("qwen3-32b", "fp8_block"),
        ("meta-llama/Llama-3.3-70B-Instruct", "fp8"),
        ("qwen2.5-72b-instruct", "fp8"),
    ],
)
def test_fp8_weights_are_what_is_published_of_a_model(name: str, product: str) -> None:
    plan = precision_plan(load_model(name), PrecisionSpec(weights=Dtype.FP8))
    assert plan.format_for("mlp").name == product
    assert any("as published" in note for note in note_texts(plan.assumptions)) is (product == "fp8_block")
    assert precision_plan(load_model(name), PrecisionSpec(scheme="fp8")).format_for("mlp").name == "fp8"


class TestFourBitsOfTheChip:
    """NVIDIA's chips multiply NVFP4, others OCP's MXFP4 in both factors: what is asked for in between is taken so."""

    @pytest.mark.parametrize("given", [{"weights": "fp4"}, {"weights": "nvfp4"}, {"weights": "mxfp4"}])
    def test_other_chips_take_their_own(self, given: dict[str, str]) -> None:
        taken = on_chip(PrecisionSpec.model_validate(given), model=LLAMA_31_8B, hardware=load_hardware("mi355x"))
        assert precision_plan(LLAMA_31_8B, taken).linear.name == "mxfp4_w4a4"

    @pytest.mark.parametrize(
        "given",
        [
            {"weights": "mxfp4", "activations": "bf16"},
            {"weights": "fp4", "activations": "fp8"},
            {"scheme": "nvfp4-w4a16"},
            {"weights": "fp8"},
            {},
        ],
    )
    def test_what_says_otherwise_is_kept(self, given: dict[str, str]) -> None:
        asked = PrecisionSpec.model_validate(given)
        assert on_chip(asked, model=LLAMA_31_8B, hardware=load_hardware("mi355x")) is asked

    @pytest.mark.parametrize("hardware", ["b200", "mi300x", "h100"])
    def test_chips_of_nvidia_and_those_without_four_bits_keep_it(self, hardware: str) -> None:
        asked = PrecisionSpec.model_validate({"weights": "nvfp4"})
        assert on_chip(asked, model=LLAMA_31_8B, hardware=load_hardware(hardware)) is asked

    def test_a_checkpoint_in_four_bits_keeps_its_own(self) -> None:
        model = quantised(Dtype.FP4, Dtype.BF16, method="mxfp4")
        asked = PrecisionSpec.model_validate({"weights": "mxfp4"})
        assert on_chip(asked, model=model, hardware=load_hardware("mi355x")) is asked


def test_a_cache_that_nobody_named_is_that_of_the_published_checkpoint() -> None:
    model = load_model("meta-llama/Llama-3.3-70B-Instruct")

    def cache(given: dict[str, str], multiplied: tuple[Dtype, ...] | None = None) -> Dtype:
        return precision_plan(model, PrecisionSpec.model_validate(given), multiplied=multiplied).kv_dtype

    assert cache({"weights": "fp8"}) is cache({"weights": "nvfp4"}) is cache({"scheme": "nvfp4"}) is Dtype.FP8
    assert cache({"weights": "fp8", "kv_cache": "bf16"}) is Dtype.BF16
    # A method that anybody applies, weights alone, and the model itself say nothing of a cache.
    for given in (
        {"scheme": "fp8"},
        {"weights": "fp8", "activations": "bf16"},
        {"weights": "nvfp4", "activations": "bf16"},
        {},
    ):
        assert cache(given) is Dtype.BF16
    assert cache({"weights": "nvfp4"}, (Dtype.BF16,)) is Dtype.BF16


def test_weights_in_nvfp4_are_those_of_the_published_checkpoint() -> None:
    """The base model asked for in NVFP4 and the checkpoint itself, by its name, keep the same parts wide."""
    known = {name.lower() for name in list_models()}
    kept_wide, compared = set(), 0
    for item in published_checkpoints():
        if item.format.method != "nvfp4" or item.source != "profile" or item.base.lower().split("/")[-1] not in known:
            continue
        model = load_model(item.id)
        if model.quantization is None or model.quantization.roles or model.quantization.method != "nvfp4":
            continue
        asked = precision_plan(load_model(item.base), PrecisionSpec.model_validate({"weights": "nvfp4"}))
        own = precision_plan(model, PrecisionSpec())
        assert asked.quantised_roles == own.quantised_roles, item.id
        assert asked.kv_dtype is own.kv_dtype
        kept_wide.update(model.quantization.unquantized)
        compared += 1
    assert compared > 8
    assert "attention" in kept_wide


@pytest.mark.parametrize("scheme", ["mxfp4", "mxfp4-w4a4"])
@pytest.mark.parametrize(
    ("name", "wide"),
    [
        ("deepseek-ai/DeepSeek-R1-0528", {"attention", "mixer"}),
        ("MiniMaxAI/MiniMax-M2.5", {"attention", "mixer"}),
        ("Qwen/Qwen3.5-397B-A17B", {"attention", "mixer"}),
        ("moonshotai/Kimi-K2.5", {"attention", "mixer", "mlp", "shared_expert"}),
        ("meta-llama/Llama-3.3-70B-Instruct", set[str]()),
    ],
)
def test_mxfp4_leaves_attention_wide_beside_experts(scheme: str, name: str, wide: set[str]) -> None:
    """AMD's engines tune 16-bit products of attention for models with experts in MXFP4, four-bit ones for dense models;
    Kimi's own checkpoint in INT4 narrows nothing but experts."""
    plan = precision_plan(load_model(name), PrecisionSpec(scheme=scheme))
    assert plan.quantised_roles == {"attention", "mixer", "mlp", "shared_expert", "experts"} - wide
    assert any("attention unquantised" in note for note in note_texts(plan.assumptions)) is bool(wide)


def test_mxfp4_of_a_checkpoint_that_names_its_own_wide_layers_keeps_those() -> None:
    model = load_model("openai/gpt-oss-120b")
    own = precision_plan(model, PrecisionSpec())
    assert "attention" not in own.quantised_roles
    assert not any("assumed" in note for note in note_texts(own.assumptions))


def test_a_format_of_its_own_goes_before_what_makers_leave_wide() -> None:
    spec = PrecisionSpec.model_validate({"scheme": "mxfp4-w4a4", "mixed": {"attention": "fp8"}})
    plan = precision_plan(load_model("MiniMaxAI/MiniMax-M2.5"), spec)
    assert {role: product.name for role, product in plan.role_formats} == {"attention": "fp8"}


def test_a_method_that_anybody_applies_narrows_all_linear_layers() -> None:
    model = load_model("MiniMaxAI/MiniMax-M2.5")
    assert "attention" in precision_plan(model, PrecisionSpec(scheme="w4a16")).quantised_roles
    for given in ({"weights": "nvfp4"}, {"weights": "nvfp4", "activations": "bf16"}, {"scheme": "nvfp4-w4a16"}):
        published = precision_plan(model, PrecisionSpec.model_validate(given))
        assert "attention" not in published.quantised_roles
        assert any("as nvidia/MiniMax-M2.5-NVFP4 says" in note for note in note_texts(published.assumptions))


@pytest.mark.parametrize("name", ["nvidia/DeepSeek-V3.1-NVFP4", "nvidia/MiniMax-M2.5-NVFP4", "nvidia/Kimi-K2.5-NVFP4"])
def test_a_checkpoint_in_nvfp4_has_the_same_bytes_on_a_device_that_widens_it(name: str) -> None:
    """Also where its own format is asked for by the name of what such a device multiplies."""
    model, device = load_model(name), load_hardware("h200")
    held = set()
    for given, multiplied in (
        (PrecisionSpec(), None),
        (PrecisionSpec(), tuple(device.peak_flops_per_s)),
        (PrecisionSpec(scheme="nvfp4"), None),
        (PrecisionSpec(scheme="nvfp4-w4a16"), None),
    ):
        plan = precision_plan(model, given, multiplied=multiplied)
        rows = operator_list(model, plan=plan, parallelism=ParallelismSpec(), step=decode_step(sequences=4, context=64))
        held.add((plan.quantised_roles, stored_bytes(rows)))
    assert len(held) == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nvidia/DeepSeek-V3.1-NVFP4", "as nvidia/DeepSeek-V3.1-NVFP4 says"),
        ("deepseek-ai/DeepSeek-V3.2", "as nvidia/DeepSeek-V3.2-NVFP4 says"),
        ("deepseek-ai/DeepSeek-R1", "assumed, as of DeepSeek-V3.1 and V3.2"),
        ("moonshotai/Kimi-K2.5", None),
        ("meta-llama/Llama-3.3-70B-Instruct", None),
    ],
)
def test_latents_kept_wide_are_said_with_what_says_so(name: str, says: str | None) -> None:
    for scheme in ("nvfp4", "nvfp4-w4a16"):
        notes = note_texts(precision_plan(load_model(name), PrecisionSpec(scheme=scheme)).assumptions)
        (said,) = [note for note in notes if "latents" in note] or [""]
        assert said.endswith(says) if says else not said
    notes = precision_plan(load_model("deepseek-ai/DeepSeek-V3.1"), PrecisionSpec(scheme="fp8")).assumptions
    assert not any("latents" in note.key for note in notes)


def test_a_model_published_with_formats_a_role_says_by_which_name() -> None:
    """Every base model whose first checkpoint in NVFP4 mixes formats; the checkpoint itself is what it says."""
    mixed = {}
    for item in published_checkpoints():
        if item.format.method == "nvfp4" and item.source == "profile" and item.base not in mixed:
            kept = load_model(item.id).quantization
            mixed[item.base] = item.id if kept is not None and kept.roles else ""
    known = {name.lower() for name in list_models()}
    asked = [base for base in mixed if base.lower().split("/")[-1] in known]
    for base in asked:
        notes = precision_plan(load_model(base), PrecisionSpec(scheme="nvfp4")).assumptions
        named = [note.values["checkpoint"] for note in notes if note.key == "formats_by_role"]
        assert named == [mixed[base]] * bool(mixed[base])
        plain = precision_plan(load_model(base), PrecisionSpec()).assumptions
        assert not any(note.key == "formats_by_role" for note in plain)
    assert sum(bool(mixed[base]) for base in asked) >= 3


def test_nvfp4_keeps_projections_of_latents_wide_and_narrows_the_output() -> None:
    """Of DeepSeek's checkpoints in NVFP4 hf_quant_config.json leaves q and kv projections out, and o_proj not."""
    model = load_model("deepseek-ai/DeepSeek-V3.1")

    def formats(given: dict[str, str]) -> dict[str, str]:
        plan = precision_plan(model, PrecisionSpec.model_validate(given))
        rows = operator_list(model, plan=plan, parallelism=ParallelismSpec(), step=decode_step(sequences=4, context=64))
        return {row.name: row.shape.format.name for row in rows if isinstance(row.shape, GemmShape)}

    narrow = formats({"weights": "nvfp4"})
    assert narrow["q_a_kv_a_proj"] == narrow["q_b_proj"] == narrow["q_absorb"] == "bf16"
    assert narrow["o_proj"] == "nvfp4"
    assert formats({"weights": "fp8"})["q_b_proj"] == formats({"weights": "fp8"})["o_proj"] == "fp8_block"


@pytest.mark.parametrize("hardware", ["b200-sxm", "mi355x"])
@pytest.mark.parametrize("given", [{}, {"weights": "nvfp4"}, {"scheme": "nvfp4"}])
@pytest.mark.parametrize("name", ["deepseek-v3.1-nvfp4", "qwen3-235b-a22b-nvfp4"])
def test_only_nvidias_chips_multiply_a_checkpoint_in_nvfp4(hardware: str, given: dict[str, str], name: str) -> None:
    """Scales of 16 values in E4M3 are NVIDIA's; the others' four-bit units take powers of two for 32."""
    model, chip = load_model(name), load_hardware(hardware)
    taken = on_chip(PrecisionSpec.model_validate(given), model=model, hardware=chip)
    plan = precision_plan(model, taken, multiplied=multiplied_dtypes(model, chip))
    experts = plan.format_for("experts")
    assert experts.math is (Dtype.FP4 if hardware == "b200-sxm" else Dtype.BF16)
    assert experts.weight_bits == pytest.approx(4.5)
