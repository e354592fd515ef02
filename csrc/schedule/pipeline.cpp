// csrc/schedule/pipeline.cpp: the list of passes. Read this first.
#include "csrc/schedule/pipeline.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "csrc/ir/simplify.h"
#include "csrc/ir/verify.h"
#include "csrc/schedule/batch.h"
#include "csrc/schedule/byte_products.h"
#include "csrc/schedule/choose_template.h"
#include "csrc/schedule/computed_masks.h"
#include "csrc/schedule/conv_statistics.h"
#include "csrc/schedule/few_rows.h"
#include "csrc/schedule/fuse.h"
#include "csrc/schedule/index_width.h"
#include "csrc/schedule/inline_maps.h"
#include "csrc/schedule/join_gradients.h"
#include "csrc/schedule/layout.h"
#include "csrc/schedule/linearize.h"
#include "csrc/schedule/loop_order.h"
#include "csrc/schedule/norms_in_products.h"
#include "csrc/schedule/packed_pairs.h"
#include "csrc/schedule/placement.h"
#include "csrc/schedule/rows_together.h"
#include "csrc/schedule/scans_in_place.h"
#include "csrc/schedule/share_copies.h"
#include "csrc/schedule/shared_heads.h"
#include "csrc/schedule/split_reductions.h"
#include "csrc/schedule/verify.h"
#include "csrc/support/error.h"

namespace ocl::schedule {

namespace {

void simplify_graph(Schedule& schedule, const Caps&) { ir::simplify(schedule.graph); }

enum When { kAlways, kFusing, kNotFusing };

/// The rules that hold after a pass.
enum Holds {
  kGraphRules,    // The rules that ir::verify checks.
  kGroupedRules,  // Also the rules that verify(schedule, kGrouped) checks.
  kPlacedRules,   // Also the rules that verify(schedule, kPlaced) checks.
  kNothing,       // The rules are checked after the next pass.
};

struct Pass {
  const char* name;
  PassFunction run;
  When when;
  Holds holds;
  // The schedule is always verified after this pass, at little cost. The graph is verified only with Options::verify.
  bool always_verified = false;
};

constexpr Pass kPasses[] = {
    {"byte_products", with_caps<byte_products>, kAlways, kGraphRules},
    {"few_rows", with_caps<few_rows>, kFusing, kGraphRules},
    {"simplify", with_caps<simplify_graph>, kAlways, kGraphRules},
    {"packed_pairs", with_caps<packed_pairs>, kFusing, kGraphRules},
    {"shared_heads", with_caps<shared_heads>, kAlways, kGraphRules},
    {"layout", with_caps<choose_layout>, kAlways, kGraphRules},
    {"compute_masks", with_caps<compute_masks>, kFusing, kGraphRules},
    {"join_gradients", with_caps<join_gradients>, kFusing, kGraphRules},
    {"choose_template", choose_template, kAlways, kGraphRules},
    {"conv_statistics", with_caps<conv_statistics>, kFusing, kGraphRules},
    {"share_copies", with_caps<share_copies>, kAlways, kGraphRules},
    {"split_reductions", with_caps<split_reductions>, kAlways, kGraphRules},
    {"inline_maps", with_caps<inline_maps>, kFusing, kGraphRules},
    {"scans_in_place", with_caps<scans_in_place>, kFusing, kGraphRules},
    {"rows_together", with_caps<rows_together>, kFusing, kGraphRules},
    {"norms_in_products", with_caps<norms_in_products>, kFusing, kGraphRules},
    {"fuse", with_caps<fuse>, kFusing, kGroupedRules, true},
    {"one_group_per_node", with_caps<one_group_per_node>, kNotFusing, kGroupedRules, true},
    {"loop_order", with_caps<loop_order>, kAlways, kGroupedRules},
    {"batch", with_caps<batch>, kFusing, kNothing},  // The launches have no order yet.
    {"linearize", with_caps<linearize>, kAlways, kGroupedRules},
    {"place_buffers", with_caps<place_buffers>, kAlways, kPlacedRules, true},
    {"choose_index_width", with_caps<choose_index_width>, kAlways, kPlacedRules},
};

struct PassOrder {
  const char *first, *second, *reason;
};

constexpr PassOrder kOrder[] = {
    {"byte_products", "layout", "its conversions have layouts as other nodes do"},
    {"few_rows", "simplify", "elements that are read together have known places, which are folded"},
    {"simplify", "packed_pairs", "the halves of a byte are found once their places are folded"},
    {"packed_pairs", "split_reductions", "a sum is rewritten as long as it is whole"},
    {"shared_heads", "choose_template", "heads that are read in place need no copy"},
    {"layout", "choose_template", "an offer depends on the strides of its operands"},
    {"layout", "split_reductions", "a reduction is cut by which of its loops is contiguous"},
    {"layout", "compute_masks", "a mask that no kernel can read is copied, and the copy is computed, too"},
    {"compute_masks", "join_gradients", "the joint kernel computes no mask"},
    {"join_gradients", "choose_template", "the joint node asks for a kernel of its own"},
    {"compute_masks", "choose_template", "an offer takes the mask or the ops that compute it"},
    {"choose_template", "split_reductions", "a contraction without a template becomes a reduction"},
    {"choose_template", "conv_statistics", "only some kernels of convolutions can store statistics"},
    {"conv_statistics", "split_reductions", "a reduction is recognised as long as it is whole"},
    {"choose_template", "inline_maps", "an offer's packing copies and partial sums fuse like any node"},
    {"choose_template", "share_copies", "offers ask for copies one by one"},
    {"share_copies", "inline_maps", "otherwise a copy's producer would be computed again for each reader"},
    {"split_reductions", "inline_maps", "partial and final steps take producers and consumers of their own"},
    {"inline_maps", "scans_in_place", "a copy that is part of its reader is none"},
    {"inline_maps", "rows_together", "a Map that reads rows has all loads of what is computed from them"},
    {"rows_together", "norms_in_products", "rows are read together from the product, not from its scaled result"},
    {"split_reductions", "norms_in_products", "a row whose sum is cut is too long to be read again by each work-group"},
    {"norms_in_products", "fuse", "the sums over a row and the product become one group"},
    {"rows_together", "fuse", "the rows of an iteration become one group"},
    {"scans_in_place", "fuse", "a copy that has gone needs no group"},
    {"inline_maps", "fuse", "what is computed again where it is read needs no group"},
    {"fuse", "loop_order", "all nodes of a group share their loops"},
    {"loop_order", "batch", "members of a batch keep loops of their own"},
    {"batch", "linearize", "a batch is one launch"},
    {"linearize", "place_buffers", "a lifetime is a pair of positions in the final order"},
};

size_t position(const char* name) {
  const auto it = std::find_if(std::begin(kPasses), std::end(kPasses),
                               [&](const Pass& pass) { return std::string_view(pass.name) == name; });
  OCL_ASSERT(it != std::end(kPasses), std::string("no pass '") + name + "'");
  return static_cast<size_t>(it - std::begin(kPasses));
}

void check_order() {
  for (const PassOrder& order : kOrder)
    OCL_ASSERT(position(order.first) < position(order.second),
               std::string(order.first) + " must run before " + order.second + ": " + order.reason);
}

/// Throws InternalError that names the pass if its result breaks a rule. `graph_too`: also checks the rules of
/// ir::verify.
void verify_after(const Pass& pass, const Schedule& schedule, bool graph_too) {
  try {
    if (graph_too) ir::verify(schedule.graph, pass.holds == kGraphRules ? ir::Level::kGraph : ir::Level::kScheduled);
    if (pass.holds != kGraphRules)
      verify(schedule, pass.holds == kPlacedRules ? ScheduleLevel::kPlaced : ScheduleLevel::kGrouped);
  } catch (const Error& error) {
    fail(error.kind(), std::string("after the pass ") + pass.name + ": " + error.what());
  }
}

}  // namespace

Schedule make_schedule(ir::Graph graph, const Caps& caps, const Options& options) {
  check_order();
  Schedule schedule;
  schedule.graph = std::move(graph);
  schedule.keeps_parameters = options.keeps_parameters;
  schedule.alone = options.alone;
  schedule.most_items = options.most_items;
  const PassContext context{caps, options.measured, options.tunables};
  for (const Pass& pass : kPasses) {
    if (pass.when == (options.fuse ? kNotFusing : kFusing)) continue;
    const auto start = std::chrono::steady_clock::now();
    pass.run(schedule, context);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    const bool verified = options.verify && pass.holds != kNothing;
    if (options.trace) options.trace->push_back({pass.name, time.count(), verified});
    if (verified || pass.always_verified) verify_after(pass, schedule, verified);
  }
  return schedule;
}

}  // namespace ocl::schedule
