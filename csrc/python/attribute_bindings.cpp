// csrc/python/attribute_bindings.cpp: the attributes of nodes in _C.ir.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "csrc/ir/graph.h"

namespace py = pybind11;

namespace ocl::python {

using namespace ocl::ir;

void bind_attributes(py::module_& m) {
  py::class_<Scalar>(m, "Scalar")
      .def(py::init<>())
      .def_readwrite("is_float", &Scalar::is_float)
      .def_readwrite("f", &Scalar::f)
      .def_readwrite("i", &Scalar::i);
  py::class_<Origin>(m, "Origin")
      .def(py::init([](std::string op, std::string source) { return Origin{std::move(op), std::move(source)}; }),
           py::arg("op") = "", py::arg("source") = "")
      .def_readwrite("op", &Origin::op)
      .def_readwrite("source", &Origin::source);
  py::class_<ConvolveAttrs>(m, "ConvolveAttrs")
      .def(py::init<>())
      .def_readwrite("kind", &ConvolveAttrs::kind)
      .def_readwrite("stride", &ConvolveAttrs::stride)
      .def_readwrite("padding", &ConvolveAttrs::padding)
      .def_readwrite("dilation", &ConvolveAttrs::dilation)
      .def_readwrite("groups", &ConvolveAttrs::groups);
  m.attr("MASK_BLOCK") = kMaskBlock;
  py::class_<AttentionAttrs>(m, "AttentionAttrs")
      .def(py::init<>())
      .def_readwrite("kind", &AttentionAttrs::kind)
      .def_readwrite("scale", &AttentionAttrs::scale)
      .def_readwrite("dropout", &AttentionAttrs::dropout)
      .def_readwrite("causal", &AttentionAttrs::causal)
      .def_readwrite("masked", &AttentionAttrs::masked)
      .def_readwrite("blocks", &AttentionAttrs::blocks)
      .def_readwrite("cap", &AttentionAttrs::cap)
      .def_readwrite("nan_rows", &AttentionAttrs::nan_rows);
  py::class_<FftAttrs>(m, "FftAttrs")
      .def(py::init([](bool inverse, double scale, int64_t root) { return FftAttrs{inverse, scale, root}; }),
           py::arg("inverse") = false, py::arg("scale") = 1.0, py::arg("root") = 0)
      .def_readonly("inverse", &FftAttrs::inverse)
      .def_readonly("scale", &FftAttrs::scale)
      .def_readonly("root", &FftAttrs::root);
  m.attr("DIGITS") = kDigits;
  py::enum_<SortStep>(m, "SortStep")
      .value("kCount", SortStep::kCount)
      .value("kMove", SortStep::kMove)
      .value("kBlocks", SortStep::kBlocks);
  py::class_<SortAttrs>(m, "SortAttrs")
      .def(py::init([](SortStep step, int64_t block, int64_t keep, int shift, int digits, bool is_signed) {
             return SortAttrs{step, block, keep, shift, digits, is_signed};
           }),
           py::arg("step"), py::arg("block"), py::arg("keep") = 0, py::arg("shift") = 0, py::arg("digits") = 1,
           py::arg("is_signed") = false)
      .def_readonly("step", &SortAttrs::step)
      .def_readonly("block", &SortAttrs::block)
      .def_readonly("keep", &SortAttrs::keep)
      .def_readonly("shift", &SortAttrs::shift)
      .def_readonly("digits", &SortAttrs::digits)
      .def_readonly("is_signed", &SortAttrs::is_signed);
}

}  // namespace ocl::python
