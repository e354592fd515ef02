// csrc/codegen/ragged_rows.cpp: see ragged_rows.h.
#include "csrc/codegen/ragged_rows.h"

#include "csrc/ir/facts.h"
#include "csrc/schedule/body.h"

namespace ocl::codegen {

using schedule::Placement;

RaggedRow ragged_row(BodyPrinter& body, const schedule::Group& group, ir::Symbol loop) {
  const schedule::Schedule& schedule = body.kernel().schedule();
  const int last = group.ragged_width - 1;
  RaggedRow row;
  std::set<std::string> seen;
  std::string first;
  for (const ir::NodeId node : group.nodes())
    for (const schedule::Access& access : schedule::accesses(schedule.graph.nodes[node])) {
      if (schedule.placements[access.buffer].kind == Placement::Kind::kNowhere) continue;
      const auto affine = ir::affine_in(body.offset_of(access.buffer, access.coords), loop);
      if (!affine || !affine->coefficient.is_const(1)) continue;
      const std::string offset = body.kernel().buffer(access.buffer) + "_offset";
      if (first.empty()) {
        first = offset;
        row.head = format("(int)((0 - (ulong)($s) - $s) & $d)", {body.index(affine->rest), offset, last});
      } else if (offset != first && seen.insert(offset).second) {
        row.fits += (row.fits.empty() ? "(((" : " | (") + first + " ^ " + offset + ")";
      }
    }
  if (first.empty()) row.head = "0";  // All elements are computed, and none is stored.
  if (!row.fits.empty()) row.fits += format(") & $d) == 0", {last});
  return row;
}

}  // namespace ocl::codegen
