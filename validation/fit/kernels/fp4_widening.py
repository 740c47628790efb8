"""What widening an FP4 weight costs where no unit does: ``python -m validation.fit.kernels.fp4_widening --data DIR``.

CDNA3 multiplies MXFP4 experts in 16 bit and has no instruction that reads FP4. Instructions a weight are those with the
smallest mean error of TPOT over InferenceX's runs of gpt-oss-120b under vLLM on MI300X; printed, not written, as one
number of format_kernels.yaml.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from unittest.mock import patch

import numpy as np

from simulator.phases import tabulate
from simulator.specs.model.precision import load_format_kernels
from validation.fit.runs.vendor_engines import cases_of, own_errors

FAMILY, CHIP, MODEL = "widened-mxfp4", "MI300X", "openai/gpt-oss-120b"
OPERATIONS = (1.0, 3.0, 5.0, 6.0, 7.0, 8.0, 10.0, 15.0)
KEPT = (tabulate._compile_stages, tabulate._by_tokens, tabulate._compile)
"""Tables of a deployment, which do not know by which kernels it was priced."""


def main() -> None:
    """Print the mean error under each number of instructions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds today/")
    parser.add_argument("--every", type=int, default=4, help="every n-th closed loop")
    arguments = parser.parse_args()
    found = cases_of(arguments.data, vendor="amd", every=arguments.every, mode="aggregated", engines=["vllm"])["vllm"]
    cases = [case for case in found if (case.today.model, case.today.hardware) == (MODEL, CHIP)]
    table = load_format_kernels()
    for operations in OPERATIONS:
        changed = table.family(FAMILY).model_copy(update={"dequantise_ops": operations})
        families = tuple(changed if family.name == FAMILY else family for family in table.families)
        tried = table.model_copy(update={"families": families})
        for table_of in KEPT:
            table_of.cache_clear()
        with patch("simulator.kernels.format_choice.load_format_kernels", return_value=tried):
            errors = np.expm1(own_errors(cases)[:, 0])
        print(f"{operations:4.0f}: {np.abs(errors).mean():.1%}, bias {errors.mean():+.1%} of {len(cases)} runs")


if __name__ == "__main__":
    main()
