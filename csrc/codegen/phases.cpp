// csrc/codegen/phases.cpp: prints the phases in order, outer phases, and slots.
#include "csrc/codegen/phases.h"

namespace ocl::codegen {

void PhasePrinter::print() {
  for (const schedule::Phase& phase : group_.phases) {
    if (phase.inner)
      print_inner(phase);
    else
      print_outer(phase);
    store_results();
  }
}

void PhasePrinter::print_outer(const schedule::Phase& phase) {
  for (const ir::NodeId node : phase.nodes) body_.run_map(node);
}

void PhasePrinter::print_outer_phases() {
  store_results();
  for (size_t p = 1; p < group_.phases.size(); ++p) {
    print_outer(group_.phases[p]);
    store_results();
  }
}

void PhasePrinter::store_results() {
  if (body_.has_stores()) print_guarded(body_, store_condition(), [&] { body_.flush_stores(); });
}

std::string Sharing::first_item() const {
  if (column) return "item % " + std::to_string(rows);
  return rows == 1 ? "0" : "(item & -" + std::to_string(items) + ")";
}

void visit_slots(BodyPrinter& body, std::vector<Slot>& slots, int width, bool keep,
                 const std::function<void(const Slot&)>& visit) {
  for (Slot& slot : slots) {
    body.push(slot.names);
    if (width > 1) body.set_lane({SymbolKind::kReduce, 0}, width);
    body.resume(slot.saved);
    visit(slot);
    const Writer text = keep ? body.pop_saving(slot.saved) : body.pop();
    body.writer().append(text);
  }
}

void print_guarded(BodyPrinter& body, const std::string& condition, const std::function<void()>& print) {
  if (!condition.empty()) body.writer().open("if ($s)", condition);
  print();
  if (!condition.empty()) body.writer().close();
}

}  // namespace ocl::codegen
