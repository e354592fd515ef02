# tests/offline/table.py: docs/offline.md, from the last run of all kernels and chips.
from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.offline.compilers import CHIPS, Chip
from tests.offline.networks import IN_HALVES, NETWORKS
from tests.offline.rendering import CAPS, GENERATED, TYPES
from tests.offline.summary import Facts, Worst

PAGE = Path(__file__).resolve().parents[2] / "docs/offline.md"
VENDORS = {"amd": "AMD", "intel": "Intel"}

HEAD = """# Kernels on GPUs that we do not have

The compilers of Intel's and AMD's GPUs run without such a GPU. `make offline` renders the project's kernels for GPUs, compiles them
with these compilers, and writes this page. It shows that the kernels build there, and whether they fit into the registers. It cannot
show that they are right or fast. [Tests](testing.md#kernels-for-gpus-that-you-do-not-have) describes the commands.

Compiled on {day} with {intel} for Intel and {amd} for AMD. Kernels that came or changed later are not on this page. All are
for GPUs with work-groups of {items} work-items and {local} KiB of local memory.

"""
SAMPLE = """The last run was a sample: {compiled:,} of {programs:,} programs, each a kernel for a chip, were compiled. The tables count
them.

"""
READING = """## How to read the tables

| word | meaning |
|---|---|
| registers | AMD: vector registers of a work-item, with accumulation registers. Intel: left out, since a thread always has 128 |
| waves | AMD: waves that a SIMD holds at the same time (occupancy). More waves hide more of the memory's latency |
| width | Intel: work-items of a thread (SIMD width) |
| spills | registers that go to memory and back |
| scratch | bytes for spills and for arrays that are no registers. AMD: of a work-item. Intel: of a thread |

A cell shows the worst kernel of its row and of {types}. A row of a kernel of `kernels/` has one tile; in each type, the kernel with the
longest text is compiled, which has the most fused ops of those that the compiler chose for the problems and networks below. A
row of generated kernels has all that differ in more than sizes. A cell that names no spills has none, and needs no scratch memory.
`-`: the compiler gives the chip other tiles.

"""


def cell(vendor: str, worst: Worst) -> str:
    text = f"{worst.registers}, {worst.waves}" if vendor == "amd" else f"{worst.width}"
    if worst.spills or worst.scratch:
        text += f" ({worst.spills} spills, {worst.scratch} B)"
    return text


def _combined(worsts: Sequence[Worst]) -> Worst:
    """Returns the worst of several types."""
    most: Callable[[str], int] = lambda name: max(getattr(w, name) for w in worsts)  # noqa: E731
    least: Callable[[str], int] = lambda name: min(getattr(w, name) for w in worsts)  # noqa: E731
    first = worsts[0]
    return Worst(first.row, "", first.chip, sum(w.kernels for w in worsts), most("registers"), most("spills"), most("scratch"),
                 most("local"), least("width"), least("waves"))  # fmt: skip


def _natural(row: str) -> list[tuple[int, str]]:
    """A key that sorts numbers in a row's name by value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in row.replace("x", " x ").split(" ")]


def _table(vendor: str, rows: Sequence[str], worsts: Sequence[Worst]) -> str:
    chips = [chip for chip in CHIPS.values() if chip.vendor == vendor]
    lines = [
        f"| kernel | kernels | local memory | {' | '.join(chip.name for chip in chips)} |",
        "|---|--:|--:|" + "---|" * len(chips),
    ]
    for row in rows:
        of_chips = {chip.name: [w for w in worsts if (w.row, w.chip) == (row, chip.name)] for chip in chips}
        found = {name: _combined(of_chip) for name, of_chip in of_chips.items() if of_chip}
        if not found:
            continue  # The vendor's chips get other tiles.
        kernels = max(w.kernels for w in found.values())
        local = max(w.local for w in found.values())
        cells = " | ".join(cell(vendor, found[chip.name]) if chip.name in found else "-" for chip in chips)
        lines.append(f"| {row} | {kernels} | {local:,} | {cells} |")
    return "\n".join(lines) + "\n\n"


def _sums(worsts: Sequence[Worst]) -> str:
    """A table: how many rows of a kind spill, or need scratch memory, on each chip."""
    lines = [
        "| chip | sold as | hand-written: kernels, rows, of which spill | generated: kernels, rows, of which spill |",
        "|---|---|--:|--:|",
    ]
    for chip in CHIPS.values():
        cells = []
        for generated in (False, True):
            mine = [w for w in worsts if w.chip == chip.name and w.row.startswith(GENERATED) == generated]
            spilled = sum(bool(w.spills or w.scratch) for w in mine)
            cells.append(f"{sum(w.kernels for w in mine):,}, {len(mine)}, {spilled}")
        lines.append(f"| {chip.name} | {sold_as(chip)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n"


def sold_as(chip: Chip) -> str:
    return f"{VENDORS[chip.vendor]} {chip.gpu}"


def page(facts: Facts) -> str:
    worsts = facts.worsts
    rows = sorted({w.row for w in worsts}, key=_natural)
    text = HEAD.format(
        day=facts.day, items=CAPS["max_group_size"], local=CAPS["local_bytes"] // 1024, **facts.compilers
    )
    if not facts.complete:
        text += SAMPLE.format(compiled=sum(w.kernels for w in worsts), programs=facts.programs)
    text += _sums(worsts) + READING.format(types=", ".join(t for t in TYPES if any(w.type == t for w in worsts)))
    for generated, title in ((False, "Kernels of kernels/"), (True, "Generated kernels")):
        mine = [row for row in rows if row.startswith(GENERATED) == generated]
        text += f"## {title}\n\n"
        if generated:
            text += f"The kernels that the compiler generates for {', '.join(NETWORKS)}, in training and inference. In fp16 and\n"
            text += f"bf16: for {', '.join(IN_HALVES)}.\n\n"
        for vendor, name in VENDORS.items():
            reads = "registers, waves" if vendor == "amd" else "width"
            text += f"### {title} on {name} ({reads})\n\n" + _table(vendor, mine, worsts)
    return text.rstrip("\n") + "\n"
