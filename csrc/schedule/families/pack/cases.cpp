// csrc/schedule/families/pack/cases.cpp: check cases of the kernels that copy operands of products in another order.
#include <algorithm>
#include <bit>
#include <cmath>

#include "csrc/ir/builder.h"
#include "csrc/schedule/families/case.h"
#include "csrc/schedule/families/gemm/matrices.h"

namespace ocl::schedule {
namespace {

constexpr int kBatch = 2;
constexpr int kLines = 64, kBlockWords = 2048;  // Of a block.

/// B of a product, [batch, depth, width]. major: whether the width (0) is contiguous, the depth (1) or neither (2).
struct Packed {
  int width, depth, major, offset;
  int step() const { return major == 2 ? 2 : 1; }
  int pitch() const { return step() * (((major == 1 ? depth : width) + 7) / 8 * 8); }
  ir::Shape strides() const {
    const int64_t one = step(), row = pitch(), matrix = row * (major == 1 ? width : depth);
    return major == 1 ? ir::Shape{matrix, one, row} : ir::Shape{matrix, row, one};
  }
  size_t elements() const { return static_cast<size_t>(kBatch) * pitch() * (major == 1 ? width : depth); }
  /// Returns an element, 0 beyond the matrix.
  float at(const std::vector<float>& x, int batch, int column, int k) const {
    if (column >= width || k >= depth) return 0;
    const int along = (major == 1 ? k : column) * step(), line = major == 1 ? column : k;
    return x[static_cast<size_t>((batch * (major == 1 ? width : depth) + line) * pitch() + along)];
  }
};

/// Makes the launch that `pack` adds for the operand. expected(values) returns its results.
template <class PackInto, class Expected>
CheckCase pack_case(const CheckSubject& subject, const Packed& p, const PackInto& pack, const std::vector<float>& values,
                    const Expected& expected) {
  ir::Builder builder;
  const ir::DType type = storage_of(subject.type);
  const ir::Shape a_sizes = {kBatch, 1, p.depth}, sizes = {kBatch, p.depth, p.width};
  const ir::Value a = builder.input(type, a_sizes, ir::contiguous_strides(a_sizes), false, false),
                  b = builder.input(type, sizes, p.strides(), false, false);
  builder.output(builder.contract(a, b, ir::DType::kF32), ir::contiguous_strides({kBatch, 1, p.width}));
  const ir::Graph graph = builder.finish();
  const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(), takes_template);
  Draft draft({graph, static_cast<ir::NodeId>(node - graph.nodes.begin()), subject.row.id, subject.caps}, Choices::exactly(""));
  const ir::View view = draft.node().operands[1];
  pack(draft, view, *matrices_in_place(draft, view, 1));
  const Preparation& packed = draft.offer.before.back();
  CheckCase check = case_of(std::get<Pack>(packed.how).launch, draft.offer, graph, p.offset, [=] {
    return CaseData{{subject.stored(std::vector<float>(static_cast<size_t>(kBatch) * p.depth)), subject.stored(values)},
                    expected(values)};
  });
  check.strides = dense(draft.offer.buffers[packed.buffer - draft.offer.first_buffer].sizes);
  return check;
}

std::vector<CheckCase> panel_cases(const CheckSubject& subject) {
  std::vector<CheckCase> cases;
  for (const CheckSubject& on : on_devices(subject)) {
    const int vw = on.caps.vector_floats;
    const int widths[] = {1, vw - 1, vw, 2 * vw, 2 * vw + 1, 5 * vw}, depths[] = {1, vw - 1, vw, 127, 128, 129, 270};
    for (int major = 0; major < 3; ++major)
      for (int i = 0; i < 6; ++i)
        for (int j = i % 2; j < 7; j += i == 0 ? 1 : 2) {
          const Packed p{widths[i], depths[j], major, i % 3 == 2 ? 1 : 0};
          const int columns = (1 + (i + j / 2) % 4) * vw, panels = (p.width + columns - 1) / columns;
          const auto pack = [&](Draft& draft, const ir::View& view, const Matrices& matrix) {
            packed_panels(draft, view, matrix, 1, columns);
          };
          cases.push_back(pack_case(on, p, pack, on.values(p.elements(), 2), [=](const std::vector<float>& x) {
            Sums sums;
            for (int batch = 0; batch < kBatch; ++batch)
              for (int panel = 0; panel < panels; ++panel)
                for (int k = 0; k < p.depth; ++k)
                  for (int c = 0; c < columns; ++c) sums.exact.push_back(p.at(x, batch, panel * columns + c, k));
            sums.sizes.assign(sums.exact.size(), 0.0);
            return sums;
          }));
        }
  }
  return cases;
}

/// Writes the words of a block, see kernels/pack/group.cl. x(line, element) returns an element of the operand.
template <class Element>
void write_block(uint32_t* words, KernelType type, BlockForm form, const Element& x) {
  const auto word = [&](int line, int element, int of_chunk) -> uint32_t& {
    return words[line * 32 + (element / of_chunk ^ (line & 7)) * 4 + element % of_chunk * 4 / of_chunk];
  };
  for (int line = 0; line < kLines; ++line) {
    double largest = 0;
    for (int e = 0; e < 64; ++e) largest = std::max(largest, std::fabs(static_cast<double>(x(line, e))));
    const double scale = largest == 0 ? 0x1p126 : std::clamp(std::ldexp(1.0, 14 - std::ilogb(largest)), 0x1p-114, 0x1p126);
    const bool halves = type != KernelType::kFp32, pairs = !halves && form == BlockForm::kPairs;
    for (int e = 0; e < (halves || pairs ? 64 : 32); ++e) {
      const float value = x(line, e);
      if (halves) {
        const std::vector<unsigned char> bytes = stored({value}, storage_of(type));
        word(line, e, 8) |= static_cast<uint32_t>(bytes[0] | bytes[1] << 8) << e % 2 * 16;
      } else if (pairs) {
        const double high = rounded(value * scale, ir::DType::kF16),
                     low = rounded((value * scale - high) * 2048, ir::DType::kF16);
        word(line, e, 8) |= static_cast<uint32_t>(half_bits(high)) << e % 2 * 16;
        (&word(line, e, 8))[kBlockWords] |= static_cast<uint32_t>(half_bits(low)) << e % 2 * 16;
      } else {
        // The nearest number with ten bits of mantissa; ties go away from zero.
        const uint32_t high = (std::bit_cast<uint32_t>(value) + 0x1000) & 0xffffe000u;
        word(line, e, 4) = high;
        if (form == BlockForm::kSplitTf32)
          (&word(line, e, 4))[kBlockWords] = std::bit_cast<uint32_t>(value - std::bit_cast<float>(high)) + 0x1000;
      }
    }
    if (pairs) words[2 * kBlockWords + line] = std::bit_cast<uint32_t>(static_cast<float>(1 / scale));
  }
}

std::vector<CheckCase> block_cases(const CheckSubject& subject) {
  std::vector<CheckCase> cases;
  CheckSubject random = subject;
  random.set = CaseSet::kSample;  // All digits.
  const bool halves = subject.halves();
  for (const BlockForm form : {BlockForm::kTf32, BlockForm::kSplitTf32, BlockForm::kPairs}) {
    if (halves && form != BlockForm::kTf32) continue;  // These have one form.
    for (const auto& [width, depth] : {std::pair(64, 64), {65, 33}, {130, 200}, {1, 1}, {200, 129}})
      for (int major = 0; major < 3; ++major)
        for (const int offset : {0, 1}) {
          const Packed p{width, depth, major, offset};
          std::vector<float> values = random.values(p.elements(), 2);
          // Lines of unlike size, and elements far smaller than the largest of their line.
          for (size_t i = 0; form == BlockForm::kPairs && i < values.size(); ++i)
            values[i] = std::ldexp(values[i], static_cast<int>(i * 37 % 121) - 60);
          const auto pack = [&](Draft& draft, const ir::View& view, const Matrices& matrix) {
            packed_blocks(draft, view, matrix, 1, ProductOperand::kB, form);
          };
          cases.push_back(pack_case(subject, p, pack, values, [=, type = subject.type](const std::vector<float>& x) {
            const bool pairs = form == BlockForm::kPairs;
            const int step = halves || pairs ? 64 : 32, panels = (p.width + 63) / 64, steps = (p.depth + step - 1) / step;
            const size_t size = pairs                           ? 2 * kBlockWords + kLines
                                : form == BlockForm::kSplitTf32 ? 2 * kBlockWords
                                                                : kBlockWords;
            std::vector<uint32_t> words(size * static_cast<size_t>(kBatch * panels * steps));
            for (int block = 0; block < kBatch * panels * steps; ++block)
              write_block(&words[size * static_cast<size_t>(block)], type, form, [&](int line, int e) {
                return e < step ? p.at(x, block / steps / panels, block / steps % panels * 64 + line, block % steps * step + e)
                                : 0;
              });
            Sums sums(words.size());
            std::ranges::transform(words, sums.exact.begin(), [](uint32_t word) { return std::bit_cast<int32_t>(word); });
            return sums;
          }));
          cases.back().integers = true;
        }
  }
  return cases;
}

}  // namespace

/// Where plans of tensor cores are checked, packs run as a part of the launches that read them.
std::vector<CheckCase> pack_cases(const CheckSubject& subject) {
  return subject.row.level == KernelLevel::k_item ? panel_cases(subject) : block_cases(subject);
}

}  // namespace ocl::schedule
