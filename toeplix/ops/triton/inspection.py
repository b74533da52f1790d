"""Facts about compiled kernels, found without a GPU: Triton compiles for a named target anywhere.

    facts = inspect(kernel, {"x": "*bf16:16", "time": "i32"}, {"BLOCK": 64}, "sm_90", num_warps=4)
    facts.registers, facts.spill_bytes, facts.shared_bytes, facts.tensor_core_instructions

Registers, spills and instructions are read from the machine code (cuobjdump and nvdisasm, which the
Triton wheel contains; the assembly's own notes for AMD), shared memory from Triton's metadata.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Target:
    """A GPU architecture as Triton names it, with its limits."""

    backend: str
    arch: int | str
    warp: int  # threads of a warp, or of a wavefront
    max_shared_bytes: int  # that one program can have


# NVIDIA: CUDA C++ Programming Guide, compute capabilities: 163 KiB (8.0) and 227 KiB (9.0) per block.
# AMD: CDNA 3 instruction set architecture: 64 KiB of local data share per compute unit.
TARGETS: dict[str, Target] = {
    "sm_80": Target(backend="cuda", arch=80, warp=32, max_shared_bytes=163 * 1024),
    "sm_90": Target(backend="cuda", arch=90, warp=32, max_shared_bytes=227 * 1024),
    "gfx942": Target(backend="hip", arch="gfx942", warp=64, max_shared_bytes=64 * 1024),
}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What one compiled kernel needs."""

    registers: int  # 32-bit registers per thread
    spill_bytes: int  # of local memory per thread: registers that did not fit, and the stack
    shared_bytes: int  # per program
    tensor_core_instructions: int  # HMMA, HGMMA, IMMA, DMMA (NVIDIA) or v_mfma (AMD) in the code
    threads: int  # per program


def inspect(
    kernel: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any],
    target: str,
    *,
    num_warps: int = 4,
    num_stages: int = 3,
    **options: Any,
) -> Facts:
    """Compile a `@triton.jit` function for a target of `TARGETS` and return the facts.

    Args:
        kernel: the function; it must not have been decorated under `TRITON_INTERPRET=1`.
        signature: the Triton type of every argument that is not a constant: `"*bf16"`, `"i32"`,
            `"fp32"`. With `:16` at its end the pointer or integer is a multiple of 16, as Triton's
            launcher finds for aligned tensors and for strides that are such multiples.
        constexprs: values of `tl.constexpr` arguments, and of arguments that the launcher makes
            constant: integers that are 1, and pointers that are None.
        target: a key of `TARGETS`.
        options: other options of the backend, such as `maxnreg`.
    """
    return facts_of(
        compiled(kernel, signature, constexprs, target, num_warps, num_stages, **options), target
    )


def compiled(
    kernel: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any],
    target: str,
    num_warps: int = 4,
    num_stages: int = 3,
    **options: Any,
) -> Any:
    """Return Triton's compiled kernel; `asm` has all its forms, from `ttir` to the binary."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    if not isinstance(kernel, triton.JITFunction):
        raise TypeError(
            f"{getattr(kernel, '__name__', kernel)!r} is no compiled Triton function: "
            "unset TRITON_INTERPRET before its module is imported"
        )
    names = kernel.arg_names
    given = {*signature, *constexprs}
    if given != set(names) or set(signature) & set(constexprs):
        raise ValueError(
            f"the arguments of {kernel.__name__} are {', '.join(names)}: each needs a type or a "
            f"value, and {', '.join(sorted(given.symmetric_difference(names))) or 'one'} "
            "has none, both, or does not exist"
        )
    types = {
        name: "constexpr" if name in constexprs else signature[name].removesuffix(":16")
        for name in names
    }
    source = ASTSource(
        kernel,
        types,
        constexprs={(names.index(name),): value for name, value in constexprs.items()},
        attrs={
            (names.index(name),): [["tt.divisibility", 16]]
            for name, kind in signature.items()
            if kind.endswith(":16")
        },
    )
    where = TARGETS[target]
    return triton.compile(
        source,
        target=GPUTarget(where.backend, where.arch, where.warp),
        # fused multiply-add is named because its default changes with the version of Triton
        options={
            "num_warps": num_warps,
            "num_stages": num_stages,
            "enable_fp_fusion": True,
            **options,
        },
    )


def facts_of(kernel: Any, target: str) -> Facts:
    """Return the facts about what `compiled` returned."""
    where = TARGETS[target]
    read = _amd if where.backend == "hip" else _nvidia
    registers, spill_bytes, instructions = read(kernel)
    return Facts(
        registers=registers,
        spill_bytes=spill_bytes,
        shared_bytes=kernel.metadata.shared,
        tensor_core_instructions=instructions,
        threads=kernel.metadata.num_warps * where.warp,
    )


def _nvidia(kernel: Any) -> tuple[int, int, int]:
    from triton import knobs

    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "kernel.cubin")
        with open(file, "wb") as opened:
            opened.write(kernel.asm["cubin"])
        usage = _output(knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file)
        code = _output(knobs.nvidia.nvdisasm.path, file)
    found = re.search(r"REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", usage)
    if found is None:
        raise ValueError(f"cuobjdump printed no resource usage: {usage!r:.200}")
    registers, stack, local = map(int, found.groups())
    return registers, stack + local, len(re.findall(r"\b(?:HG|H|I|D|QG|Q)MMA\.", code))


def _amd(kernel: Any) -> tuple[int, int, int]:
    code = kernel.asm["amdgcn"]

    def note(name: str) -> int:
        found = re.search(rf"\.{name}:\s*(\d+)", code)
        if found is None:
            raise ValueError(f"the assembly has no {name}")
        return int(found.group(1))

    # vector registers include the accumulation registers, which share one file
    spilled = 4 * (note("vgpr_spill_count") + note("sgpr_spill_count"))
    spilled = max(spilled, note("private_segment_fixed_size"))
    return note("vgpr_count"), spilled, len(re.findall(r"\bv_mfma_", code))


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
