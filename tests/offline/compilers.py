# tests/offline/compilers.py: the compilers of Intel's and AMD's GPUs, which run without such a GPU, and what they report.
"""scripts/offline_compilers.sh unpacks the compilers. `compile_text` gives what a kernel needs on a chip: registers, spills,
memory. Nothing runs."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(os.environ.get("OCL_OFFLINE_COMPILERS") or Path.home() / ".cache/torch_ocl_compile/offline_compilers")
LIBRARIES = FOLDER / "usr/lib/x86_64-linux-gnu"
CLANG = FOLDER / "usr/lib/llvm-19/bin/clang"
OCLOC = FOLDER / "usr/bin/ocloc"
# A kernel is built without -cl-std by the product, which is version 1.2; the other option as on devices that support it.
OPTIONS = ("-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt", "-w")
LONGEST_SECONDS = 600


Limits = tuple[int, int]  # Caps::item_registers and Caps::thread_items.


@dataclass(frozen=True)
class Chip:
    name: str
    vendor: str
    gpu: str  # What it is sold as.
    # As csrc/runtime/probes/caps.cpp finds on it: registers of a work-item, and work-items of a thread of group kernels.
    item_registers: int
    thread_items: int
    # AMD: the device library of its instruction set. Debian's are older than some chips, whose nearest relative is taken.
    library: str = ""
    wave64: bool = False  # AMD: waves of 64 work-items, otherwise of 32.

    @property
    def limits(self) -> Limits:
        return self.item_registers, self.thread_items


CHIPS = {
    chip.name: chip
    for chip in (
        Chip("skl", "intel", "Gen9: Core of 2015 to 2020", 112, 8),
        Chip("tgllp", "intel", "Gen12: Core of 2020 to 2023", 112, 8),
        Chip("acm-g10", "intel", "Xe-HPG: Arc A", 112, 8),
        Chip("pvc", "intel", "Xe-HPC: Data Center GPU Max", 96, 16),
        Chip("gfx906", "amd", "Vega 20: MI50, Radeon VII", 128, 0, "906", wave64=True),
        Chip("gfx90a", "amd", "CDNA 2: MI200", 128, 0, "90a", wave64=True),
        Chip("gfx942", "amd", "CDNA 3: MI300", 128, 0, "940", wave64=True),
        Chip("gfx1030", "amd", "RDNA 2: Radeon RX 6000", 128, 0, "1030"),
        Chip("gfx1100", "amd", "RDNA 3: Radeon RX 7000", 128, 0, "1036"),
        Chip("gfx1201", "amd", "RDNA 4: Radeon RX 9000", 128, 0, "1036"),
    )
}


class CompileError(Exception):
    """A compiler refuses a kernel. The message is its log."""


@dataclass(frozen=True)
class Report:
    """What a kernel needs on a chip."""

    kernel: str
    registers: (
        int  # AMD: vector registers of a work-item, accumulation registers included. Intel: registers of a thread.
    )
    scalar_registers: int  # AMD.
    spills: int  # Registers that go to memory and back. AMD: vector registers.
    scalar_spills: int  # AMD: scalar registers that go to lanes of vector registers and back, which is fast.
    # Bytes for spills and private arrays. AMD: of a work-item. Intel: of a thread, which is `width` work-items; a power of 2.
    scratch: int
    local: int  # Bytes of local memory.
    width: int  # Work-items of a wave (AMD) or of a thread (Intel).
    waves: int  # AMD: waves that are resident on a SIMD at the same time.


def versions() -> dict[str, str]:
    """Returns the versions of the packages, as the script stored them. FileNotFoundError if there are no compilers."""
    lines = (FOLDER / "versions").read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines)


@cache
def version(vendor: str) -> str:
    """Returns the version of a vendor's compiler and what it is called with: another text means other results."""
    packages = {"intel": ("intel-opencl-icd", "libigc1"), "amd": ("clang-19", "rocm-device-libs")}[vendor]
    known = versions()
    return ", ".join(f"{name} {known[name]}" for name in packages)


def compile_text(text: str, chip: Chip) -> list[Report]:
    """Compiles a program and returns a report for each of its kernels. CompileError with the log if it does not build."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.cl"
        source.write_text(text, encoding="utf-8")
        reports = (_amd if chip.vendor == "amd" else _intel)(source, chip)
    if not reports:
        raise CompileError("the program has no kernel")
    return reports


def _run(command: list[str], path: str) -> str:
    environment = {**os.environ, "LD_LIBRARY_PATH": path}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=LONGEST_SECONDS, check=False
    )
    if done.returncode != 0:
        raise CompileError(f"status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def _refuse_calls(names: set[str]) -> None:
    if names:
        raise CompileError(f"nothing defines {', '.join(sorted(names))}")


# ---- AMD ----


def amd_command(source: Path, chip: Chip) -> list[str]:
    """Returns the command that prints a program's assembler.

    All device libraries are linked. A call that stays unresolved would make the compiler assume 16 KiB of scratch."""
    bits = LIBRARIES / "amdgcn/bitcode"
    names = ("opencl", "ocml", "ockl", "oclc_correctly_rounded_sqrt_on", "oclc_daz_opt_off", "oclc_finite_only_off",
             "oclc_unsafe_math_off", f"oclc_wavefrontsize64_{'on' if chip.wave64 else 'off'}",
             f"oclc_isa_version_{chip.library}", "oclc_abi_version_400")  # fmt: skip
    linked = [part for name in names for part in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", f"{bits}/{name}.bc")]
    return [str(CLANG), "-x", "cl", *OPTIONS, "-target", "amdgcn-amd-amdhsa", f"-mcpu={chip.name}",
            "-mcode-object-version=4", "-O3", "-Xclang", "-finclude-default-header", *linked, "-nogpulib", "-S", "-o", "-",
            str(source)]  # fmt: skip


def _amd(source: Path, chip: Chip) -> list[Report]:
    text = _run(amd_command(source, chip), f"{LIBRARIES}:{FOLDER}/usr/lib/llvm-19/lib")
    named = set(re.findall(r"([\w.$]+)@(?:gotpcrel32|rel32)@lo", text))
    _refuse_calls(named - set(re.findall(r"^([\w.$]+):", text, re.MULTILINE)))
    # Occupancies stand in comments behind each function, the rest in the metadata at the end.
    waves, name = {}, ""
    for line in text.splitlines():
        if found := re.match(r"\s*\.amdhsa_kernel (\w+)", line):
            name = found[1]
        elif (found := re.match(r"; Occupancy: (\d+)", line)) and name not in waves:
            waves[name] = int(found[1])
    metadata = text.partition("amdhsa.kernels:")[2].partition("amdhsa.target:")[0]
    reports = []
    for kernel in re.split(r"^  - ", metadata, flags=re.MULTILINE)[1:]:
        # ocloc indents a key of the kernel by four columns, and a key of an argument by more.
        facts = dict(re.findall(r"^(?:    )?\.(\w+): +(\S+)$", kernel, re.MULTILINE))
        reports.append(Report(
            kernel=facts["name"], registers=int(facts["vgpr_count"]), scalar_registers=int(facts["sgpr_count"]),
            spills=int(facts["vgpr_spill_count"]), scalar_spills=int(facts["sgpr_spill_count"]),
            scratch=int(facts["private_segment_fixed_size"]), local=int(facts["group_segment_fixed_size"]),
            width=int(facts["wavefront_size"]), waves=waves[facts["name"]],
        ))  # fmt: skip
    return reports


# ---- Intel ----


def _intel(source: Path, chip: Chip) -> list[Report]:
    # The binary format with a description of each kernel, which newer drivers use for every chip.
    log = _run(
        [str(OCLOC), "compile", "-file", str(source), "-device", chip.name, "-out_dir", str(source.parent), "-options",
         " ".join(OPTIONS), "-internal_options", "-cl-intel-allow-zebin"],
        f"{LIBRARIES}:{LIBRARIES}/intel-opencl",
    )  # fmt: skip
    (binary,) = source.parent.glob("*.bin")
    elf = binary.read_bytes()
    spills = {name: int(count) for name, count in re.findall(r"kernel (\w+)\s+compiled .* spilled around (\d+)", log)}
    info = _section(elf, ".ze_info").decode().partition("\nkernels_misc_info:")[0]
    reports = []
    for kernel in re.split(r"^  - name: +", info.partition("\nkernels:")[2], flags=re.MULTILINE)[1:]:
        name = kernel.split("\n", 1)[0].strip()
        if name == "Intel_Symbol_Table_Void_Program":  # It holds tables of builtins, and is no kernel of the text.
            continue
        facts = dict(re.findall(r"^      (\w+): +(\d+)$", kernel, re.MULTILINE))
        width = int(facts["simd_size"])
        scratch = 0
        memory = kernel.partition("per_thread_memory_buffers:")[2]
        for buffer in re.split(r"^      - ", memory, flags=re.MULTILINE)[1:]:
            size = re.search(r"size: +(\d+)", buffer)
            if size is None:
                raise CompileError(f"a memory buffer of {name} has no size: {buffer}")
            scratch += int(size[1]) * (width if "is_simt_thread:  true" in buffer else 1)
        reports.append(Report(
            kernel=name, registers=int(facts["grf_count"]), scalar_registers=0, spills=spills.get(name, 0), scalar_spills=0,
            scratch=scratch, local=int(facts.get("slm_size", 0)), width=width, waves=0,
        ))  # fmt: skip
    if reports:
        _refuse_calls(_undefined(elf))
    return reports


def _section(elf: bytes, wanted: str) -> bytes:
    """Returns a section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + size * i) for i in range(count)]
    for name, _, _, _, offset, length in headers:
        if _name(elf, headers[names][4] + name) == wanted:
            return elf[offset : offset + length]
    raise CompileError(f"the binary has no section {wanted}")


def _name(elf: bytes, start: int) -> str:
    return elf[start : elf.index(b"\0", start)].decode()


def _undefined(elf: bytes) -> set[str]:
    """Returns the names of the symbols that the driver would have to find elsewhere."""
    strings = _section(elf, ".strtab")
    symbols = struct.iter_unpack("<IBBHQQ", _section(elf, ".symtab"))
    return {_name(strings, name) for name, _, _, section, _, _ in symbols if section == 0 and name}
