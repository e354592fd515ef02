// csrc/schedule/families/gemm/fits.cpp: what the kernels of matrix products require, with reasons.
#include <cmath>
#include <optional>

#include "csrc/schedule/families/tensor_cores.h"

namespace ocl::schedule {
namespace {

constexpr int64_t kFewRows = 4;

ProductSizes sizes(const Draft& d) { return product_sizes(d.node()); }

/// The seconds that it takes to pack the operands, and the bytes of the larger packed one. Kept operands cost no time.
std::pair<double, double> packing(const Draft& d, const TensorCoreMath& math) {
  const ProductSizes p = sizes(d);
  const int element = 16 / math.chunk;
  double seconds = 0, bytes = 0;
  for (const bool first : {true, false}) {
    const ir::View& view = d.node().operands[first ? 0 : 1];
    const bool batched = std::any_of(view.coords.begin(), view.coords.end(), [](const ir::IndexExpr& e) {
      return e.uses(ir::SymbolKind::kLoop) && ir::substitute(e, {{ir::IndexExpr::loop(0).symbol(), ir::IndexExpr(0)}}) != e;
    });
    const double count = static_cast<double>(batched ? p.batches : 1);
    const double read = count * static_cast<double>(first ? p.rows : p.columns) * static_cast<double>(p.depth) * element;
    bytes = std::max(bytes, read);  // Packed operands are as large, or by a 64th larger (BlockForm::kPairs).
    if (!is_kept(d, view)) seconds += 2 * read / kMemoryBytesPerSecond + kLaunchSeconds;
  }
  return {seconds, bytes};
}

int64_t most_packed_bytes(const Draft& d) { return std::min(d.caps.max_alloc_bytes, d.caps.global_bytes / 16); }

/// The seconds of the fastest plan with packed operands, or with operands in place.
double fastest(const Draft& d, const TensorCoreMath& math, bool packed) {
  return tile_plans(d.caps, math, sizes(d), packed)[0].seconds;
}

/// The type that both operands have, if an instruction of some CPUs multiplies it.
std::optional<KernelType> word_type(const Draft& d) {
  const ir::DType type = d.buffer(d.node().operands[0].buffer).dtype;
  if (type != d.buffer(d.node().operands[1].buffer).dtype) return std::nullopt;
  if (type == ir::DType::kI8 && d.buffer(d.node().outputs[0]).dtype == ir::DType::kI32) return KernelType::kInt8;
  return type == ir::DType::kBF16 ? std::optional(KernelType::kBf16) : std::nullopt;
}

std::string text(const ProductSizes& p) {
  return std::to_string(p.rows) + " x " + std::to_string(p.columns) + " x " + std::to_string(p.depth);
}

}  // namespace

bool computes_gemm(const KernelRow&, const ir::Node& node) { return node.kind == ir::NodeKind::kContract; }

Refused why_not_gemm_item(const Draft& draft) {
  static const Fit rows[] = {kLoadable};
  return first_refusal(rows, draft);
}

Refused why_not_gemm_pairs_item(const Draft& draft) {
  static const Fit rows[] = {
      {[](const Draft& d) { return word_type(d).has_value(); },
       [](const Draft& d) {
         return std::string("the operands are ") + ir::name(d.buffer(d.node().operands[0].buffer).dtype) + " and " +
                ir::name(d.buffer(d.node().operands[1].buffer).dtype) + ", not both bf16 or both int8";
       }},
      {[](const Draft& d) { return d.caps.kernels.has(d.kernel, *word_type(d)); },
       [](const Draft& d) { return std::string("the processor has no instruction for products of ") + name(*word_type(d)); }},
      // With few rows, reading B takes as long as the products. Other kernels do not take int8.
      {[](const Draft& d) {
         return sizes(d).rows > kFewRows || !d.node().sizes[1].is_const() || word_type(d) == KernelType::kInt8;
       },
       [](const Draft& d) {
         return "M = " + std::to_string(sizes(d).rows) + " is below " + std::to_string(kFewRows + 1) +
                ": reading B takes the time";
       }}};
  return first_refusal(rows, draft);
}

Refused why_not_gemm_group(const Draft& draft) { return why_not_gemm_item(draft); }

Refused why_not_gemm_tensor_core(const Draft& draft) {
  static const Fit rows[] = {
      kMultiplied,
      {[](const Draft& d) { return sizes(d).rows >= 24; },
       [](const Draft& d) { return "M = " + std::to_string(sizes(d).rows) + " is below 24: most of a tile would be empty"; }},
      {[](const Draft& d) { return sizes(d).columns >= 24; },
       [](const Draft& d) {
         return "N = " + std::to_string(sizes(d).columns) + " is below 24: most of a tile would be empty";
       }},
      {[](const Draft& d) { return sizes(d).depth >= 16; },
       [](const Draft& d) { return "K = " + std::to_string(sizes(d).depth) + " is below 16: most of a step would be empty"; }}};
  return first_refusal(rows, draft);
}

Refused why_not_gemm_packed_tensor_core(const Draft& draft) {
  static const Fit rows[] = {
      kMultiplied,
      {[](const Draft& d) { return d.caps.kernels.has(d.kernel, tensor_core_math(d)->type); },
       [](const Draft& d) {
         const KernelType type = tensor_core_math(d)->type;
         const std::string why = d.caps.kernels.why_removed(d.kernel, type);
         return std::string("packed operands of type ") + name(type) + " are not used on this device" +
                (why.empty() ? "" : ": " + why);
       }},
      {[](const Draft& d) {
         const ProductSizes p = sizes(d);
         return std::min({p.rows, p.columns, p.depth}) >= 64 && static_cast<double>(p.rows) * static_cast<double>(p.columns) *
                                                                        static_cast<double>(p.depth) *
                                                                        static_cast<double>(p.batches) >=
                                                                    static_cast<double>(kMinPackedProducts);
       },
       [](const Draft& d) { return "a product of " + text(sizes(d)) + " is too small to pack its operands first"; }},
      {[](const Draft& d) { return packing(d, *tensor_core_math(d)).second <= static_cast<double>(most_packed_bytes(d)); },
       [](const Draft& d) {
         return "a packed operand of " + std::to_string(std::llround(packing(d, *tensor_core_math(d)).second / (1 << 20))) +
                " MiB is above the limit of " + std::to_string(most_packed_bytes(d) >> 20) + " MiB";
       }},
      {[](const Draft& d) {
         const TensorCoreMath math = *tensor_core_math(d);
         return fastest(d, math, true) + packing(d, math).first < fastest(d, math, false);
       },
       [](const Draft& d) {
         const TensorCoreMath math = *tensor_core_math(d);
         const auto microseconds = [](double seconds) { return std::to_string(std::llround(seconds * 1e6)) + " us"; };
         return "packing the operands takes about " + microseconds(packing(d, math).first) + " and saves " +
                microseconds(fastest(d, math, false) - fastest(d, math, true));
       }}};
  return first_refusal(rows, draft);
}

}  // namespace ocl::schedule
