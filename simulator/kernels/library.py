"""Work -> Timing on one accelerator under one kernel library: which model and which fit price what. Physics with a
fitted correction where family and format were measured, otherwise the family's three-parameter roofline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from simulator.kernels.attention.cases import MEASURED_KV_HEADS, WIDE_MATH, attention_family, choose_attention_fit
from simulator.kernels.attention.decode import decode_attention_timing
from simulator.kernels.attention.prefill import attention_timing
from simulator.kernels.collectives.network import collective_timing
from simulator.kernels.engine_traits import (
    NO_TRAITS,
    SCALING,
    EngineTraits,
    norm_pass,
    pass_shape,
    passes_of,
    quantising_pass,
    row_kind,
    with_passes,
    with_wait,
    without,
)
from simulator.kernels.fits import (
    LIBRARY_ORDER,
    BeyondDomain,
    CollectiveFits,
    FitSet,
    beyond_domain,
    collective_fits,
    fit_set,
    measured_fits,
)
from simulator.kernels.format_choice import (
    SAME_KERNELS,
    derived_product,
    faster,
    find,
    no_faster_than,
    on_split_kernels,
    peer_of,
    runs_measured_kernel,
    shared_products,
    wide_rival,
)
from simulator.kernels.gemm import gemm_timing
from simulator.kernels.roofline import elementwise_timing, fitted_timing, host_transfer_timing, user_timing
from simulator.kernels.step_rows import exposed, in_step, price_rows
from simulator.kernels.timing import Provenance, Timing, between, chosen, mean_timing, widened
from simulator.operators.work import (
    Array,
    AttentionShape,
    CollectiveShape,
    ElementwiseShape,
    GemmShape,
    GroupedGemmShape,
    HostTransferShape,
    MoeShape,
    RecurrentShape,
    Work,
)
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec
from simulator.specs.hardware.calibration import CalibrationGroup, KernelFit
from simulator.specs.model.precision import Dtype

# The format whose fit stands in for one without measurements, and what that adds to the spread.
STAND_IN_FORMAT = "bf16"
STAND_IN_LOG_SIGMA = 0.35
# All libraries run the same 16-bit products, but vLLM's table was measured on uninitialised weights, which draw less
# power than real ones and so run at higher clocks; SGLang's was measured on random data.
RANDOM_DATA = {"vllm": "sglang", "torch": "sglang"}
# The library that runs the same decode kernel on this architecture and was measured on more KV heads.
SAME_DECODE_KERNEL = {("vllm", "hopper"): "sglang"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLibrary:
    """Prices of every kernel on one accelerator.

    Each set of fits is the accelerator's own or its nearest relative's, or None where nobody measured the family.
    datasheet : the accelerator whose fits they are; ``hardware`` : the same at the rates that it sustains
    plain_gemm : fits of 16-bit products, gemm : of all others
    shared_gemm : of formats that every library multiplies with the same kernels
    beyond : the server's other links, for collectives that leave the scale-up domain
    measured : the user's own roofline fits of this accelerator. They go before a relative's fits, and under the
        library that was measured before any other's; fits of the asked library on this accelerator go before them.
    """

    hardware: AcceleratorSpec
    datasheet: AcceleratorSpec
    library: str
    roofline: FitSet
    gemm: FitSet | None
    plain_gemm: FitSet | None
    attention: FitSet | None
    wide_attention: FitSet | None
    elementwise: FitSet | None
    collectives: CollectiveFits
    beyond: BeyondDomain | None
    measured: FitSet | None = None
    shared_gemm: tuple[tuple[str, FitSet], ...] = ()
    traits: EngineTraits = NO_TRAITS

    def rare_fits(self, group: CalibrationGroup, *, foreign: bool = False, library: str = "") -> FitSet | None:
        """Fits that few models need, chosen when one does: among the facts of all accelerators that were measured.

        foreign : another vendor's, for the kernels that its own vendor's lack; library : another than the asked one
        """
        library, profiles = library or self.library, self.roofline.profiles
        return fit_set(self.datasheet, library=library, group=group, profiles=profiles, foreign=foreign)

    def price(self, work: Work, *, hidden_s: Array | None = None) -> Timing:
        """Time of one execution of ``work`` on one device [s]; nothing to do takes no time.

        hidden_s : what the rows beside a collective take; where None they are priced here
        """
        if hidden_s is None and isinstance(work.shape, CollectiveShape) and work.shape.beside:
            return self.price_all((work,))[0]
        # Cases without work have no logarithm for the corrections to look up; they are set to nothing below.
        with np.errstate(divide="ignore", invalid="ignore"):
            timing = self._price(work)
            if hidden_s is not None and isinstance(work.shape, CollectiveShape):
                timing = exposed(timing, work.shape, hidden_s=hidden_s)
        return in_step(timing, work, traits=self.traits)

    def price_all(self, works: Sequence[Work]) -> tuple[Timing, ...]:
        """`price` of each row, in their order, in few calls."""
        return price_rows(self, works)

    def _price(self, work: Work) -> Timing:
        match work.shape:
            case CollectiveShape():
                return self._collective(work.shape)
            case GemmShape():
                return self._gemm(work, work.shape)
            case GroupedGemmShape():
                return self._grouped(work, work.shape)
            case MoeShape():
                return self._moe(work, work.shape)
            case AttentionShape():
                return self._attention(work, work.shape)
            case RecurrentShape():
                return self._recurrent(work, work.shape)
            case ElementwiseShape():
                return self.memory_pass(work.shape)
            case HostTransferShape():
                return host_transfer_timing(work.shape, hardware=self.hardware, on_host=self.traits.on_host)

    def _user_fit(self, fits: FitSet | None, *, family: str, fmt: str) -> KernelFit | None:
        """The user's fit of a family and format where it goes before ``fits``."""
        if self.measured is None:
            return None
        own = fits is not None and fits.relative.name == self.hardware.name
        if own and fits is not None and fits.library == self.library:
            return None
        return self.measured.find(family=family, fmt=fmt)

    def _collective(self, shape: CollectiveShape) -> Timing:
        timing = self._moved(shape, fits=self.collectives)
        largest, one_shot_bytes = self.traits.fused_up_to(shape)
        if self.traits.fused is not None and largest:
            own = self._moved(shape, fits=self.traits.fused, one_shot_bytes=one_shot_bytes)
            fused = without(own, self.memory_pass(norm_pass(shape)))
            timing = chosen(np.asarray(shape.message_bytes) <= largest, fused, timing)
        return with_wait(timing, traits=self.traits, participants=shape.participants)

    def _moved(self, shape: CollectiveShape, *, fits: CollectiveFits, one_shot_bytes: float | None = None) -> Timing:
        beyond, hardware = self.beyond, self.hardware
        if beyond is not None and shape.span > hardware.scale_up.domain_size:
            hardware, fits = beyond.hardware, beyond.collectives
        timings = [
            collective_timing(
                shape,
                hardware=hardware,
                fits=measured,
                one_shot_bytes=one_shot_bytes,
                network=None if beyond is None else beyond.network,
                relative=self.traits.lent(fits.relative, kind=row_kind(shape)),
            )
            for measured in (fits.fits, *fits.beside)
        ]
        return mean_timing(timings)

    def _gemm(self, work: Work, shape: GemmShape) -> Timing:
        if (timing := self.product(shape)) is not None:
            return timing
        if (user := self._user_fit(self.gemm, family="gemm", fmt=shape.format.name)) is not None:
            return user_timing(work, hardware=self.hardware, fit=user)
        return self._roofline(work, family="gemm", fmt=shape.format.name)

    def product(self, shape: GemmShape) -> Timing | None:
        """Price of a product from kernels of its format, or from the 16-bit ones. None where nothing tells how, or
        where the user's own three parameters do."""
        if self._user_fit(self.gemm, family="gemm", fmt=shape.format.name) is not None:
            return None
        found = self._product_fit(shape)
        if found is None:
            timing = derived_product(shape, hardware=self.hardware, library=self.library, plain=self.plain_gemm)
            if timing is None:
                return None
        else:
            timing = self._measured_product(shape, *found)
            wide = wide_rival(shape, hardware=self.hardware, fits=found[0], fit=found[1])
            timing = timing if wide is None else faster(timing, self.product(wide))
        timing = on_split_kernels(timing, shape, split=self.traits.split_products, product=self.product)
        contained = found is not None and found[1].includes_quantisation
        if shape.format.quantises_activations and shape.format.name in self.traits.quantised_before:
            return self._without_quantising(timing, shape, library=found[0].library) if found and contained else timing
        passes = passes_of(shape.format, contained=contained)
        timing = timing if passes is None else with_passes(timing, self.memory_pass(pass_shape(shape, passes)))
        peer = peer_of(shape, hardware=self.hardware) if found is None else None
        measured = self.product(peer) if peer is not None and self._product_fit(peer) is not None else None
        return timing if measured is None else no_faster_than(measured, timing)

    def _measured_product(self, shape: GemmShape, fits: FitSet, fit: KernelFit) -> Timing:
        """A product by its fit, and by that of a slower kernel where the engine's release lies between the two."""
        timing = fits.priced(
            fit, lambda fit, lattice: gemm_timing(shape, hardware=self.hardware, fit=fit, lattice=lattice, cold=True)
        )
        recipe = self.traits.kernel_of(SAME_KERNELS.get(shape.format.name, shape.format.name), family="gemm")
        if recipe is None or recipe.slower is None or fits is not recipe.fits:
            return timing
        if (found := find(recipe.slower, family="gemm", fmt=recipe.kernel.kernel)) is None:
            return timing
        slower = replace(self, traits=NO_TRAITS)._measured_product(shape, *found)
        return between(timing, slower, recipe.kernel.slower_share)

    def _without_quantising(self, timing: Timing, shape: GemmShape, *, library: str) -> Timing:
        """A measured product less the passes that its table ran before it: narrowing, in some the largest value too."""
        narrowing = self.memory_pass(quantising_pass(shape))
        floor_s = float(np.min(narrowing.seconds))
        timing = without(timing, narrowing, floor_s=floor_s)
        fits = fit_set(self.hardware, library=library, group="elementwise", profiles=self.roofline.profiles)
        scales = fits.find(family="elementwise", fmt=STAND_IN_FORMAT, variant="scale") if fits else None
        if scales is None or shape.format.name != Dtype.FP8.value:
            return timing
        scaling = elementwise_timing(pass_shape(shape, SCALING), hardware=self.hardware, fit=scales)
        return without(timing, scaling, floor_s=floor_s)

    def _product_fit(self, shape: GemmShape) -> tuple[FitSet, KernelFit] | None:
        """The fit of measured kernels that prices a product, if any."""
        name = SAME_KERNELS.get(shape.format.name, shape.format.name)
        if name == STAND_IN_FORMAT:
            return find(self.plain_gemm, family="gemm", fmt=name)
        recipe = self.traits.kernel_of(name, family="gemm")
        if recipe is not None and not shape.format.kernel:
            return find(recipe.fits, family="gemm", fmt=recipe.kernel.kernel)
        for fits in (self.gemm, *(fits for shared, fits in self.shared_gemm if shared == name)):
            found = find(fits, family="gemm", fmt=shape.format.name)
            if found is not None and runs_measured_kernel(shape.format, library=found[0].library):
                return found
        return None

    def _grouped(self, work: Work, shape: GroupedGemmShape) -> Timing:
        if shape.rows is not None:
            from simulator.kernels.attention.chosen_keys import padding

            work = replace(work, flops=work.flops * padding(shape.rows, hardware=self.hardware))
        return self._roofline(work, family="gemm", fmt=shape.format.name)

    def _moe(self, work: Work, shape: MoeShape) -> Timing:
        # Few models route their tokens: others do without.
        from simulator.kernels.experts import experts_timing

        timing = experts_timing(
            shape,
            hardware=self.hardware,
            library=self.library,
            traits=self.traits,
            tables=self.rare_fits("moe"),
            memory_pass=self.memory_pass,
        )
        return self._roofline(work, family="gemm", fmt=shape.format.name) if timing is None else timing

    def _attention(self, work: Work, shape: AttentionShape) -> Timing:
        if (timing := self.attention_call(shape)) is not None:
            return timing
        family = attention_family(shape)
        if (user := self._user_fit(self.attention, family=family, fmt=shape.kv_dtype.value)) is not None:
            return user_timing(work, hardware=self.hardware, fit=user)
        fmt = shape.compute_dtype.value if shape.compute_dtype in WIDE_MATH else STAND_IN_FORMAT
        return self._roofline(work, family=family, fmt=fmt)

    def attention_call(self, shape: AttentionShape) -> Timing | None:
        """Price of attention, heads broadcast with its arrays where no row has more of them than were measured. None
        where nobody measured its kernel, or where the user's own three parameters price it."""
        if self._user_fit(self.attention, family=attention_family(shape), fmt=shape.kv_dtype.value) is not None:
            return None
        if shape.expanded_widths is not None:
            from simulator.kernels.attention.chosen_keys import chosen_keys_timing

            return chosen_keys_timing(shape, hardware=self.hardware, price=self.attention_call, traits=self.traits)
        wide = shape.is_decode and np.max(shape.num_kv_heads) > MEASURED_KV_HEADS and self.wide_attention is not None
        # The engine's own fits, or those of the library that measured the same kernel on as many KV heads.
        if (timing := self._attention_by(self.wide_attention if wide else self.attention, shape)) is not None:
            return timing
        return self._next_attention(shape) or self._attention_by(self.rare_fits("attention", foreign=True), shape)

    def _next_attention(self, shape: AttentionShape) -> Timing | None:
        """By the next library's (TensorRT-LLM's of A100 is unusable); a window that hides no key shares no reads."""
        fits = self.rare_fits("attention", library=LIBRARY_ORDER[self.library][1])
        window, within = shape.window, self._attention_by(fits, shape)
        plain = within if window is None else self._attention_by(fits, replace(shape, window=None))
        if window is None or within is None or plain is None:
            return within or plain
        return chosen(np.asarray(shape.context_tokens) + shape.query_tokens > window, within, plain)

    def _attention_by(self, fits: FitSet | None, shape: AttentionShape) -> Timing | None:
        """Price by one set of fits; None where it lacks the kernel."""
        has_fp8 = Dtype.FP8 in self.hardware.peak_flops_per_s
        choice = choose_attention_fit(fits.fits, shape=shape, has_fp8=has_fp8) if fits else None
        if fits is None or choice is None:
            return None
        price = _attention_model(choice.fit)
        timing = price(shape, hardware=self.hardware, fit=choice.fit, lattice=fits.lattice(choice.fit))
        lender = self.traits.lent(fits.relative, kind=row_kind(shape))
        return replace(fits, relative=lender).transferred(widened(timing, log_sigma_extra=choice.log_sigma_extra))

    def _recurrent(self, work: Work, shape: RecurrentShape) -> Timing:
        from simulator.kernels.recurrent import measured_timing  # few models are recurrent: others do without

        profiles = self.roofline.profiles
        tables = partial(fit_set, self.datasheet, library=self.library, group="recurrent", profiles=profiles)
        timing = (
            measured_timing(work, shape, hardware=self.hardware, tables=tables) if shape.variant != "mamba" else None
        )
        return self._roofline(work, family="decode_attention", fmt=STAND_IN_FORMAT) if timing is None else timing

    def memory_pass(self, shape: ElementwiseShape) -> Timing:
        """Price of a pass bound by memory."""
        fits = self.elementwise
        fit = fits.find(family="elementwise", fmt=STAND_IN_FORMAT, variant="pass") if fits else None
        relative = self.traits.lent(fits.relative, kind=row_kind(shape)) if fits and fit else None
        timing = elementwise_timing(shape, hardware=self.hardware, fit=fit, relative=relative)
        if shape.searched_rows is None or shape.searched_numbers is None:
            return timing
        from simulator.kernels.attention.chosen_keys import searched

        return searched(timing, rows=shape.searched_rows, numbers=shape.searched_numbers, hardware=self.hardware)

    def _roofline(self, work: Work, *, family: str, fmt: str) -> Timing:
        """Three parameters of this family and format, or of the same family in bf16 with a wider spread."""
        found = find(self.roofline, family=family, fmt=fmt)
        provenance, extra = Provenance.CALIBRATED, 0.0
        if found is None:
            found = find(self.roofline, family=family, fmt=STAND_IN_FORMAT)
            provenance, extra = Provenance.ASSUMED, STAND_IN_LOG_SIGMA
        assert found is not None, "every roofline calibration holds the bf16 families"
        fits, fit = found
        return fits.transferred(
            fitted_timing(work, hardware=self.hardware, fit=fit, provenance=provenance, log_sigma_extra=extra)
        )


def _attention_model(fit: KernelFit) -> Callable[..., Timing]:
    """What prices a call by a fit of its model; latent attention, which few models have, is loaded where it is met."""
    match fit.model:
        case "split_decode_attention":
            return decode_attention_timing
        case "tiled_prefill_attention":
            return attention_timing
        case _:
            from simulator.kernels.attention.latent import LATENT_MODEL, latent_decode_timing

            assert fit.model == LATENT_MODEL
            return latent_decode_timing


def kernel_library(
    hardware: AcceleratorSpec, *, library: str, server: ServerSpec | None = None, profiles: str | None = None
) -> KernelLibrary:
    """The fits that price ``hardware`` under ``library``, its own or those of its nearest calibrated relative.

    server : what holds it, where groups leave its scale-up domain
    """
    roofline = fit_set(hardware, library=library, group="roofline", profiles=profiles)
    assert roofline is not None, "roofline calibrations ship with the package"
    wide = SAME_DECODE_KERNEL.get((library, hardware.architecture))
    return KernelLibrary(
        hardware=hardware,
        datasheet=hardware,
        library=library,
        roofline=roofline,
        gemm=fit_set(hardware, library=library, group="gemm", profiles=profiles),
        plain_gemm=fit_set(hardware, library=RANDOM_DATA.get(library, library), group="gemm", profiles=profiles),
        attention=fit_set(hardware, library=library, group="attention", profiles=profiles),
        wide_attention=fit_set(hardware, library=wide, group="attention", profiles=profiles) if wide else None,
        elementwise=fit_set(hardware, library=library, group="elementwise", profiles=profiles),
        collectives=collective_fits(hardware, library=library, profiles=profiles),
        beyond=beyond_domain(hardware, server, library=library, profiles=profiles),
        measured=measured_fits(hardware, profiles=profiles),
        shared_gemm=shared_products(hardware, profiles=profiles),
    )
