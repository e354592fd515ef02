// tests/cpp/test_kernel_rows.cpp: a new row is enough for a kernel to be listed, chosen, checked and disabled, and a row and
// its functions for an operation. This program is built with copies of kernels/kernels.def and operations.def that have the
// rows of scratch_kernels.def and scratch_operations.def, too (CMakeLists.txt).
#include <doctest/doctest.h>

#include <algorithm>

#include "csrc/checks/check_text.h"
#include "csrc/ir/builder.h"
#include "csrc/kernels/caps.h"
#include "csrc/schedule/families/tiles.h"
#include "csrc/schedule/pipeline.h"
#include "csrc/support/error.h"

using namespace ocl;

// What a new operation adds in its folder of csrc/schedule/families.
namespace ocl::schedule {

void offer_gemm_group(Draft& draft);

bool computes_gemm_scratch(const KernelRow& row, const ir::Node& node) {
  return row.level == KernelLevel::k_group && node.kind == ir::NodeKind::kContract && node.sizes[0].is_const(1);
}
Refused why_not_gemm_scratch_group(const Draft&) { return std::nullopt; }
void offer_gemm_scratch_group(Draft& draft) { offer_gemm_group(draft); }
std::vector<CheckCase> gemm_scratch_cases(const CheckSubject& subject) {
  CheckCase check;
  check.kernel = subject.row.id;
  return {check};
}

}  // namespace ocl::schedule

namespace {

Caps gpu() {
  Caps caps;
  caps.is_cpu = false;
  caps.units = 132;
  caps.local_bytes = 48 << 10;
  caps.max_group_size = 1024;
  return caps;
}

/// Returns the row whose offer is taken for products of bf16 matrices.
std::string chosen(const Caps& caps, int batch = 1) {
  ir::Builder b;
  const ir::Shape sizes = {batch, 256, 256};
  const auto matrix = [&] { return b.input(ir::DType::kBF16, sizes, ir::contiguous_strides(sizes), false, false); };
  const ir::Value product = b.contract(matrix(), matrix(), ir::DType::kBF16);
  b.output(product, ir::contiguous_strides(sizes));
  schedule::Options options;
  options.verify = true;
  for (const std::string& line : make_schedule(b.finish(), caps, options).log)
    if (line.find("gemm_") != std::string::npos)
      return line.substr(line.find("gemm_"), line.find(' ', line.find("gemm_")) - line.find("gemm_"));
  return "";
}

}  // namespace

TEST_CASE("a new row is all that a kernel needs") {
  const KernelRow& row = kernel_rows().end()[-2];
  REQUIRE(std::string(row.name) == "gemm_scratch_warp");
  CHECK(kernel_row(row.id).name == row.name);
  CHECK(row.arguments.front().name == "a");

  const auto& asked = schedule::template_rows();
  CHECK(std::any_of(asked.begin(), asked.end(), [&](const schedule::TemplateRow& r) { return r.kernel == row.id; }));

  Caps caps = gpu();
  caps.kernels.remove("gemm_scratch");
  CHECK(chosen(caps) == "gemm_group");
  // The row of gemm_group comes before the new row.
  caps.kernels.remove("gemm_group");
  CHECK(chosen(caps) == "");
  caps.kernels.add("gemm_scratch_warp");
  CHECK(caps.kernels.has(KernelLevel::k_warp));
  CHECK(chosen(caps) == "gemm_scratch_warp");
  for (const char* name : {"gemm_scratch_warp", "gemm_scratch_warp:bf16", "warp"}) {
    Caps without = caps;
    without.kernels.remove(name);
    CAPTURE(name);
    CHECK(chosen(without) == "");
  }
  Caps without = caps;
  without.kernels.remove("gemm_scratch_warp:fp16");
  CHECK(chosen(without) == "gemm_scratch_warp");

  for (const KernelRow::Checked& checked : row.types) {
    const std::vector<checks::CheckCase> cases = schedule::check_cases(row, checked.type, MatrixInstructions::kNone);
    CHECK(!cases.empty());
    for (const checks::CheckCase& check : cases) CHECK(checks::text_of(check).find("void KERNEL_NAME") != std::string::npos);
  }
}

TEST_CASE("a new operation is a row and the functions of its folder") {
  const KernelRow& row = kernel_rows().back();
  REQUIRE(std::string(row.name) == "gemm_scratch_group");
  CHECK(row.operation_name() == "gemm_scratch");
  Caps caps = gpu();
  CHECK(chosen(caps) == "gemm_group");
  caps.kernels.remove("gemm_group");
  CHECK(chosen(caps) == "gemm_scratch_group");
  CHECK(chosen(caps, 2) == "");  // The operation does not compute this node, so no row of it is asked.
  for (const char* disabled : {"gemm_scratch", "gemm_scratch_group"}) {
    Caps without = caps;
    without.kernels.remove(disabled);
    CAPTURE(disabled);
    CHECK(chosen(without) == "");
  }
  const std::vector<checks::CheckCase> cases = schedule::check_cases(row, KernelType::kBf16, MatrixInstructions::kNone);
  REQUIRE(cases.size() == 1);
  CHECK(cases[0].kernel == row.id);
}

TEST_CASE("a tile that the kernel cannot have is an error") {
  const schedule::GroupTile good = {.rows = 32,
                                    .columns = 64,
                                    .item_rows = 4,
                                    .item_columns = 8,
                                    .registers = 80,
                                    .summed = 90,
                                    .rate = 0.6,
                                    .source = "estimate"};
  CHECK(schedule::fitting_tiles(gpu(), {good}, 64).size() == 1);
  std::vector<schedule::GroupTile> wrong(4, good);
  wrong[0].rows = 24;
  wrong[1].item_columns = 6;
  wrong[2].columns = 16;
  wrong[3].registers = 0;
  for (const schedule::GroupTile& tile : wrong)
    CHECK_THROWS_WITH_AS(schedule::fitting_tiles(gpu(), {good, tile}, 64), doctest::Contains("in tiles.def is wrong"), Error);
}

TEST_CASE("names of kernels") {
  KernelSet set = portable_kernels();
  CHECK(set.has(KernelId::k_gemm_item));
  CHECK(!set.has(KernelLevel::k_warpgroup));
  set.add("warpgroup:bf16");
  CHECK(set.has(KernelId::k_gemm_warpgroup, KernelType::kBf16));
  CHECK(!set.has(KernelId::k_gemm_warpgroup, KernelType::kFp16));
  CHECK(set.has(KernelId::k_gemm_wide_warpgroup, KernelType::kBf16));
  // Kernels that are special forms of it, such as gemm_wide_warpgroup, are removed, too.
  set.remove("gemm_warpgroup");
  CHECK(!set.has(KernelId::k_gemm_wide_warpgroup, KernelType::kBf16));
  CHECK(set.has(KernelId::k_conv_warpgroup, KernelType::kBf16));
  CHECK(set.why_not(KernelId::k_gemm_warpgroup).find("it is disabled") == 0);
  CHECK(set.why_removed(KernelId::k_gemm_wide_warpgroup, KernelType::kBf16) == set.why_not(KernelId::k_gemm_warpgroup));
  CHECK(set.why_removed(KernelId::k_gemm_warpgroup, KernelType::kFp16) == "");
  CHECK(set.why_not(KernelId::k_gemm_warp).find("lacks the matrix instructions") != std::string::npos);
  set.remove("item");  // This keeps the kernels without an alternative, such as attention_item.
  CHECK(!set.has(KernelId::k_gemm_item));
  CHECK(set.has(KernelId::k_attention_item));
  CHECK_THROWS_WITH_AS(set.remove("attention_item"), doctest::Contains("no other kernel computes"), Error);
  CHECK_THROWS_WITH_AS(set.remove("gemm_item:int"), doctest::Contains("ends in no type"), Error);
  CHECK_THROWS_WITH_AS(set.remove("gemm_item:tf32"), doctest::Contains("disables nothing"), Error);
  CHECK_THROWS_WITH_AS(set.remove("gem"), doctest::Contains("there are item, group, subgroup_matrix, warp,"), Error);
  CHECK(names_of(",warp,,gemm_warp:bf16") == std::vector<std::string>{"warp", "gemm_warp:bf16"});
}

TEST_CASE("arguments are given by the names of the row") {
  schedule::TemplateLaunch launch;
  launch.kernel = KernelId::k_gemm_packed_warpgroup;
  launch.args({{"b_batch", 6}, {"K", 3}, {"M", 1}});
  launch.args({{"N", 2}, {"a_batch", 5}, {"batches", 4}});
  launch.buffers({{"b", {8, 0}}, {"a", {7, 0}}});
  REQUIRE(launch.ints.size() == 6);
  for (size_t i = 0; i < 6; ++i) {
    CHECK(launch.ints[i].value.constant() == static_cast<int64_t>(i) + 1);
    CHECK(launch.ints[i].wide == (i > 3));
  }
  CHECK(launch.inputs[0].buffer == 7);
  launch.check_arguments();
  CHECK_THROWS_WITH_AS(launch.arg("k", 1), doctest::Contains("has no integer argument 'k'"), Error);
  CHECK_THROWS_WITH_AS(launch.arg("a", 1), doctest::Contains("has no integer argument 'a'"), Error);
  CHECK_THROWS_WITH_AS(launch.arg("K", 1), doctest::Contains("argument 'K' twice"), Error);
  launch.ints.pop_back();
  CHECK_THROWS_WITH_AS(launch.check_arguments(), doctest::Contains("was not given argument 'b_batch'"), Error);
}
