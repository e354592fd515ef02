# tests/fuzz/corpus/kernels.py: kernels that did not build, or that the driver's compiler crashed on.
from tests.fuzz.corpus.row import f32, named

PROGRAMS = [
    named(
        "sine_in_place_of_every_second",
        "Intel's compiler crashed on a loop of scalars that stores where it loads, with a stride",
        [f"{f32(10)}[::2]", f"{f32(4, 12)}[:, 1::3]"],
        ["a0.sin_()", "a1.atan_()"],
    ),
    named(
        "bytes_become_bool",
        "a vector of chars was compared with an int",
        ["make(device, (8, 3), torch.int8, 1)", "make(device, (40,), torch.uint8, 1)"],
        ["v0 = a0.to(torch.bool)", "v1 = a1.to(torch.bool)"],
        ["v0", "v1"],
    ),
]
