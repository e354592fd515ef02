// csrc/python/attribute_bindings.cpp: the attributes of nodes in _C.ir.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "csrc/ir/graph.h"
#include "csrc/python/fields.h"

namespace ocl::python {

using namespace ocl::ir;

void bind_attributes(py::module_& m) {
  py::class_<Scalar>(m, "Scalar") OCL_WRITE(Scalar, is_float, f, i).def(py::init<>());
  py::class_<Origin>(m, "Origin") OCL_WRITE(Origin, op, source)
      .def(py::init([](std::string op, std::string source) { return Origin{std::move(op), std::move(source)}; }),
           py::arg("op") = "", py::arg("source") = "");
  py::class_<ConvolveAttrs>(m, "ConvolveAttrs") OCL_WRITE(ConvolveAttrs, kind, stride, padding, dilation, groups)
      .def(py::init<>());
  m.attr("MASK_BLOCK") = kMaskBlock;
  py::class_<AttentionAttrs>(m, "AttentionAttrs")
      OCL_WRITE(AttentionAttrs, kind, scale, dropout, causal, masked, blocks, cap, nan_rows)
          .def(py::init<>());
  py::enum_<FftForm>(m, "FftForm") OCL_VALUES(FftForm, kComplex, kFromReal, kToReal);
  py::class_<FftAttrs>(m, "FftAttrs") OCL_READ(FftAttrs, inverse, scale, root, form)
      .def(
          py::init([](bool inverse, double scale, int64_t root, FftForm form) { return FftAttrs{inverse, scale, root, form}; }),
          py::arg("inverse") = false, py::arg("scale") = 1.0, py::arg("root") = 0, py::arg("form") = FftForm::kComplex);
  m.attr("DIGITS") = kDigits;
  py::enum_<SortStep>(m, "SortStep") OCL_VALUES(SortStep, kCount, kMove, kBlocks);
  py::class_<SortAttrs>(m, "SortAttrs") OCL_READ(SortAttrs, step, block, keep, shift, digits, is_signed, end)
      .def(py::init([](SortStep step, int64_t block, int64_t keep, int shift, int digits, bool is_signed, int64_t end) {
             return SortAttrs{step, block, keep, shift, digits, is_signed, end};
           }),
           py::arg("step"), py::arg("block"), py::arg("keep") = 0, py::arg("shift") = 0, py::arg("digits") = 1,
           py::arg("is_signed") = false, py::arg("end") = 0);
}

}  // namespace ocl::python
