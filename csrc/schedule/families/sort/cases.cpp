// csrc/schedule/families/sort/cases.cpp: check cases of the kernels of sorting.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "csrc/ir/builder.h"
#include "csrc/schedule/families/case.h"

namespace ocl::schedule {
namespace {

/// Rows of keys that differ in `digits` digits above `shift`. more: kCount has chosen keys, the others have positions; sums:
/// kMove gets counts.
struct Problem {
  int rows, n, block, keep;
  bool is_long;
  int shift, digits;
  bool is_signed, more, sums;
  int offset = 0, end = 0;
  int blocks() const { return (n + block - 1) / block; }
};

// One block and several, the last one whole or not. Few keys are inserted or selected, many are sorted by digits. Only counts
// have keys of 64 bits, because the rig passes places in outputs as numbers of floats.
constexpr Problem kProblems[] = {{1, 1, 256, 1, false, 0, 4, true, false, false},
                                 {3, 100, 256, 100, false, 0, 4, true, true, true},
                                 {2, 700, 256, 5, false, 8, 1, false, false, true, 1},
                                 {2, 1000, 256, 232, false, 24, 1, true, false, false},
                                 {1, 3000, 512, 130, false, 0, 2, false, true, true},
                                 {2, 700, 256, 7, true, 0, 8, true, true, true},
                                 {1, 512, 256, 256, true, 56, 1, true, false, false, 1},
                                 // Few keys of each value, and many of each.
                                 {3, 768, 768, 768, false, 0, 2, false, true, true, 0, 700},
                                 {2, 768, 768, 768, false, 0, 2, false, false, true, 1, 5}};

std::vector<int64_t> keys_of(const Problem& s) {
  std::vector<int64_t> keys(static_cast<size_t>(s.rows) * s.n);
  uint64_t random = 1;
  for (int64_t& key : keys) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    uint64_t digits = random >> 8;
    if (random % 5 == 0) digits &= 0x0103;  // Equal keys.
    const int bits = 8 * s.digits;
    digits = bits < 64 ? digits & ((uint64_t{1} << bits) - 1) : digits << 8;
    digits <<= s.shift;
    if (s.end > 0) digits %= static_cast<uint64_t>(s.end);
    key = s.is_long ? static_cast<int64_t>(digits) : static_cast<int32_t>(digits);
  }
  return keys;
}

int digit_of(const Problem& s, int64_t key) {
  return static_cast<int>((static_cast<uint64_t>(key) >> s.shift) & 255) ^ (s.is_signed && s.digits == 1 ? 128 : 0);
}

/// Returns the bytes of keys, or of numbers of 32 bits.
std::vector<unsigned char> bytes_of(const std::vector<int64_t>& numbers, bool is_long) {
  const size_t element = is_long ? 8 : 4;
  std::vector<unsigned char> bytes(numbers.size() * element);
  for (size_t i = 0; i < numbers.size(); ++i) std::memcpy(&bytes[i * element], &numbers[i], element);  // Little-endian.
  return bytes;
}

/// Appends numbers of 32 bits to expected results.
void append(Sums& sums, const std::vector<int64_t>& numbers) {
  for (const int64_t number : numbers) sums.exact.push_back(static_cast<int32_t>(number));
  sums.sizes.resize(sums.exact.size());
}

/// Returns how many keys of each block have each digit: [rows][256][blocks]. Only those with the digits of `chosen` above
/// count.
std::vector<int64_t> counts_of(const Problem& s, const std::vector<int64_t>& keys, const std::vector<int64_t>& chosen) {
  std::vector<int64_t> counts(static_cast<size_t>(s.rows) * ir::kDigits * s.blocks());
  for (int row = 0; row < s.rows; ++row)
    for (int i = 0; i < s.n; ++i) {
      const int64_t key = keys[static_cast<size_t>(row * s.n + i)];
      if (!chosen.empty() && key >> (s.shift + 8) != chosen[static_cast<size_t>(row)] >> (s.shift + 8)) continue;
      ++counts[static_cast<size_t>((row * ir::kDigits + digit_of(s, key)) * s.blocks() + i / s.block)];
    }
  return counts;
}

/// Appends the first `keep` keys of each block of a row, and their positions, in the order of `before`.
template <class Before>
void sort_rows(const Problem& s, const std::vector<int64_t>& keys, const std::vector<int64_t>& positions, int block, int keep,
               const Before& before, std::vector<int64_t>& sorted, std::vector<int64_t>& moved) {
  for (int row = 0; row < s.rows; ++row)
    for (int begin = 0; begin < s.n; begin += block) {
      std::vector<size_t> order(static_cast<size_t>(std::min(block, s.n - begin)));
      std::iota(order.begin(), order.end(), static_cast<size_t>(row * s.n + begin));
      std::ranges::stable_sort(order, [&](size_t a, size_t b) { return before(keys[a], keys[b]); });
      order.resize(static_cast<size_t>(keep));
      for (const size_t at : order) {
        sorted.push_back(keys[at]);
        moved.push_back(s.more ? positions[at] : static_cast<int64_t>(at) - row * s.n);
      }
    }
}

CheckCase sort_case(const CheckSubject& subject, const Problem& s, ir::SortStep step) {
  ir::Builder builder;
  const ir::DType type = s.is_long ? ir::DType::kI64 : ir::DType::kI32;
  const auto input = [&](ir::DType dtype, const ir::Shape& sizes) {
    return builder.input(dtype, sizes, ir::contiguous_strides(sizes), false, false);
  };
  std::vector<ir::Value> operands = {input(type, {s.rows, s.n})};
  if (s.more && step == ir::SortStep::kCount) operands.push_back(input(type, {s.rows}));
  if (s.more && step != ir::SortStep::kCount) operands.push_back(input(ir::DType::kI32, {s.rows, s.n}));
  if (step == ir::SortStep::kMove)
    operands.push_back(input(
        ir::DType::kI32, s.sums ? ir::Shape{s.rows, ir::kDigits, s.blocks()} : ir::Shape{s.rows, ir::kDigits * s.blocks()}));
  ir::SortAttrs attrs;
  attrs.end = s.end;
  attrs.step = step, attrs.block = s.block, attrs.keep = step == ir::SortStep::kBlocks ? s.keep : 0;
  attrs.shift = s.shift, attrs.digits = s.digits;
  attrs.is_signed = s.is_signed && (step == ir::SortStep::kBlocks || s.digits == 1);
  for (const ir::Value& result : builder.sort(operands, attrs)) builder.output(result, ir::contiguous_strides(result.sizes));
  const ir::Graph graph = builder.finish();
  const size_t places = static_cast<size_t>(s.rows) * (step == ir::SortStep::kMove ? s.n : s.blocks() * s.keep);
  CheckCase check = case_of(subject.offer(graph, ""), graph, s.offset, [=] {
    const std::vector<int64_t> keys = keys_of(s);
    std::vector<int64_t> positions(keys.size()), chosen, sorted, moved;
    for (size_t i = 0; i < keys.size(); ++i) positions[i] = static_cast<int64_t>(i * 7 + 3);
    for (int row = 0; s.more && row < s.rows; ++row) chosen.push_back(keys[static_cast<size_t>(row * s.n)]);
    CaseData data;
    data.inputs.push_back(bytes_of(keys, s.is_long));
    if (step == ir::SortStep::kCount) {
      if (s.more) data.inputs.push_back(bytes_of(chosen, s.is_long));
      append(data.results, counts_of(s, keys, chosen));
      return data;
    }
    if (s.more) data.inputs.push_back(bytes_of(positions, false));
    if (step == ir::SortStep::kMove) {
      std::vector<int64_t> counts = counts_of(s, keys, {});
      const auto row = static_cast<ptrdiff_t>(ir::kDigits * s.blocks());
      for (auto at = counts.begin(); !s.sums && at != counts.end(); at += row) std::partial_sum(at, at + row, at);
      data.inputs.push_back(bytes_of(counts, false));
      sort_rows(
          s, keys, positions, s.n, s.n, [&](int64_t a, int64_t b) { return digit_of(s, a) < digit_of(s, b); }, sorted, moved);
    } else {
      sort_rows(s, keys, positions, s.block, s.keep, std::less<>(), sorted, moved);
    }
    append(data.results, sorted);
    append(data.results, moved);
    return data;
  });
  check.integers = true;
  check.strides = dense({s.rows, static_cast<int64_t>(places) / s.rows});
  if (step != ir::SortStep::kCount) check.outputs = {places, places};
  if (step == ir::SortStep::kCount) {
    check.strides = dense({s.rows, ir::kDigits, s.blocks()});
    check.outputs = {static_cast<size_t>(s.rows) * ir::kDigits * s.blocks()};
  }
  return check;
}

}  // namespace

std::vector<CheckCase> sort_cases(const CheckSubject& subject) {
  const KernelId id = subject.row.id;
  const ir::SortStep step = id == KernelId::k_sort_count_item || id == KernelId::k_sort_count_group ? ir::SortStep::kCount
                            : id == KernelId::k_sort_move_item || id == KernelId::k_sort_move_group ? ir::SortStep::kMove
                                                                                                    : ir::SortStep::kBlocks;
  std::vector<CheckCase> cases;
  for (const Problem& s : kProblems)
    if (!s.is_long || step == ir::SortStep::kCount) cases.push_back(sort_case(subject, s, step));
  return cases;
}

}  // namespace ocl::schedule
