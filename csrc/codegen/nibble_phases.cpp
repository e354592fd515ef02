// csrc/codegen/nibble_phases.cpp: matrices of int4 times a few rows, on tensor cores (kernels/tensor_core/nibbles.cl).
//
//   a tile of a matrix, 16 rows:   | step 0 | step 1 | step 2 | ...     a step is 16 * words bytes of each row
//                                    warp 0   warp 1   warp 2           lane l has words * 4 bytes at l % 4 of rows l / 4 and
//                                                                       l / 4 + 8
//
// The weights of a round are loaded while the row is prepared, or the round before is multiplied. Elements are 128 too large;
// so 128, and the zero, times the sum of the row over the step is subtracted before the step's scale is applied.
#include "csrc/codegen/nibble_phases.h"

#include <algorithm>

#include "csrc/codegen/flat_index.h"

namespace ocl::codegen {

namespace {

constexpr int kUnrolled = 4;  // Most vectors of a row that an item prepares without a loop.

std::string vector_of(const char* type, int width) { return type + (width > 1 ? std::to_string(width) : ""); }

std::string named(const char* prefix, int number, size_t matrix, int line) {
  return format("$s$d_$d_$d", {prefix, number, static_cast<int64_t>(matrix), line});
}

/// Returns the only one of the factors, if it is an element of bf16.
std::optional<ir::Op> plain_bf16(const ir::Graph& graph, ir::NodeId node, const std::vector<int>& factors) {
  if (factors.size() != 1) return std::nullopt;
  const ir::Op& op = graph.nodes[node].body.ops[static_cast<size_t>(factors[0])];
  const bool plain = op.code == OpCode::kLoad && op.args.empty() && graph.buffers[op.buffer].dtype == DType::kBF16 &&
                     std::ranges::none_of(op.index, [](const IndexExpr& e) { return e.uses(SymbolKind::kValue); });
  return plain ? std::optional(op) : std::nullopt;
}

}  // namespace

NibblePhases::NibblePhases(BodyPrinter& body, const schedule::Group& group, const NibbleGroup& nibbles,
                           const NibbleShares& shares)
    : PhasePrinter(body, group),
      nibbles_(nibbles),
      shares_(shares),
      columns_(nibbles.vectors.size()),
      reductions_(body, group.phases[0]) {
  Kernel& kernel = body_.kernel();
  const int totals = static_cast<int>(nibbles.totals());
  weights_ =
      kernel.local_array({DType::kI32, nibbles.words}, 1, shares.stages() * static_cast<int>(place(shares.at_once, 0, 0)));
  row_ = kernel.local_array({DType::kI32, 4}, 0, static_cast<int>(nibbles.row_vectors() * static_cast<int64_t>(columns_)));
  sums_ = kernel.local_array({DType::kF32, 1}, 0, static_cast<int>(nibbles.sums()) * kNibbleTile * shares.warps * shares.tiles);
  if (totals == 0) return;
  totals_ = kernel.local_array({DType::kF32, 1}, 1, totals * shares.items());
  merged_ = kernel.local_array({DType::kF32, 1}, 2, totals * shares.items() / kMergedTotals);
}

void NibblePhases::print() {
  Writer& w = body_.writer();
  for (int number = 0; number < shares_.at_once; ++number)
    for (size_t m = 0; m < nibbles_.matrices.size(); ++m)
      for (const int line : {0, 1}) {
        w.line("uint $s;", named("scale", number, m, line));
        if (nibbles_.matrices[m].zero != ir::kNone) w.line("uint $s;", named("zero", number, m, line));
      }
  for (int round = 0; round < shares_.stages(); ++round) {
    print_loads(Loads::kWeights, std::to_string(round));
    w.line("nibble_commit();");
  }
  print_loads(Loads::kScales, "0");
  print_row();
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // the row is in place");
  if (!own_totals_.empty()) merge_totals();
  if (columns_ > 1) w.line("const int column = min(line, $d) * $d;", columns_ - 1, nibbles_.row_vectors());
  if (shares_.rounds == 1) print_column_sums();
  for (size_t m = 0; m < nibbles_.matrices.size(); ++m) w.line("$s sum$d = 0.0f;", columns_ > 1 ? "float4" : "float2", m);
  if (shares_.all_rounds() == 1) {
    print_round("0");
  } else {
    w.line("$s", kNotUnrolled);
    w.open("for (int at = 0; at < $d; ++at)", shares_.all_rounds());
    print_round("at");
    w.close();
  }
  w.line("barrier(CLK_LOCAL_MEM_FENCE);  // the sums of all warps are in place");
  print_results();
}

int64_t NibblePhases::place(int number, size_t matrix, int line) const {
  return (static_cast<int64_t>(nibbles_.matrices.size()) * number * 2 + static_cast<int64_t>(matrix) * 2 + line) *
         shares_.items();
}

/// Returns the text of a step's number.
std::string NibblePhases::step(int number, const std::string& round) const {
  const std::string first = round == "0" ? "" : format("$s * $d + ", {round, shares_.warps * shares_.at_once});
  const std::string text = format("$s$d + warp", {first, number * shares_.warps});
  return shares_.uneven() ? format("min($s, $d)", {text, shares_.steps - 1}) : text;
}

/// Prints the copies of a round of weights, or the loads of its scales and zeros.
void NibblePhases::print_loads(Loads what, const std::string& at) {
  const bool single = at == "0";
  body_.push({});
  Writer& w = body_.writer();
  const std::string type = body_.kernel().index_type();
  const std::string tile = single ? "0" : "tile", round = shares_.rounds == 1 || single ? "0" : "round";
  if (!single) w.line("const int tile = ($s) / $d;", at, shares_.rounds);
  if (round == "round") w.line("const int round = ($s) % $d;", at, shares_.rounds);
  if (what == Loads::kWeights)
    w.line("__local $s* to = $s + item$s;", type_name({DType::kI32, nibbles_.words}), weights_,
           single ? "" : format(" + ($s) % $d * $d", {at, shares_.stages(), place(shares_.at_once, 0, 0)}));
  for (int number = 0; number < shares_.at_once; ++number) {
    w.line("const $s r$d = ($s) * $d + part * $d;", type, number, step(number, round), 16 * nibbles_.words, 4 * nibbles_.words);
  }
  for (const int line : {0, 1}) {
    w.line("const $s n$d = min(first + $s * $d + line + $d, $d);", type, line, tile, kNibbleTile, 8 * line, nibbles_.rows - 1);
    Writer unflatten;
    body_.push(write_unflatten(body_, unflatten, "n" + std::to_string(line), type, group_.sizes, group_.sizes.size(),
                               SymbolKind::kLoop, "_" + std::to_string(line)));
    body_.writer().append(unflatten);
    for (int number = 0; number < shares_.at_once; ++number) {
      body_.push({{kAlong, "r" + std::to_string(number)}});
      if (what == Loads::kWeights)
        print_copy(number, line);
      else
        print_scale(number, line);
      const Writer step = body_.pop();
      body_.writer().append(step);
    }
    const Writer text = body_.pop();
    body_.writer().append(text);
  }
  const Writer text = body_.pop();
  body_.writer().open("");
  body_.writer().append(text);
  body_.writer().close();
}

/// Prints the copies of a step for one of a lane's two rows.
void NibblePhases::print_copy(int number, int line) {
  for (size_t m = 0; m < nibbles_.matrices.size(); ++m) {
    const NibbleSum& sum = nibbles_.matrices[m];
    const ir::Op& load = body_.kernel().graph().nodes[sum.node].body.ops[static_cast<size_t>(sum.bytes)];
    const std::string from = format("$s + ($s)", {body_.kernel().buffer(load.buffer),
                                                  body_.index(body_.offset_of(load.buffer, load.index))}),
                      to = format("to + $d", {place(number, m, line)});
    body_.writer().line("if (aligned) NIBBLE_COPY_$d($s, $s); else nibble_copy_bytes((__local uchar*)($s), $s, $d);",
                        nibbles_.words, to, from, to, from, 4 * nibbles_.words);
  }
}

/// Prints the loads of a step's scales and zeros for one of a lane's two rows. They are converted when they are used, because a
/// conversion waits for the load.
void NibblePhases::print_scale(int number, int line) {
  for (size_t m = 0; m < nibbles_.matrices.size(); ++m) {
    const NibbleSum& sum = nibbles_.matrices[m];
    const auto print = [&](const char* what, const std::vector<int>& factors) {
      std::string text;
      if (const std::optional<ir::Op> load = plain_bf16(body_.kernel().graph(), sum.node, factors)) {
        const std::string index = body_.index(body_.offset_of(load->buffer, load->index));
        text = format("$s[$s]", {body_.kernel().buffer(load->buffer), index});
      } else {
        for (const int factor : factors) text += (text.empty() ? "" : " * ") + body_.value(sum.node, factor).text;
        text = "as_uint(" + (text.empty() ? "1.0f" : text) + ")";
      }
      body_.writer().line("$s = $s;", named(what, number, m, line), text);
    };
    print("scale", sum.scales);
    if (sum.zero != ir::kNone) print("zero", {sum.zero});
  }
}

std::string NibblePhases::loaded_value(const char* what, int number, size_t matrix, int line) const {
  const NibbleSum& sum = nibbles_.matrices[matrix];
  const std::vector<int> factors = *what == 's' ? sum.scales : std::vector<int>{sum.zero};
  const char* shift = plain_bf16(body_.kernel().graph(), sum.node, factors) ? " << 16" : "";
  const std::string bits = (shares_.all_rounds() > 1 ? "now_" : "") + named(what, number, matrix, line);
  return format("as_float($s$s)", {bits, shift});
}

/// Prints how the rows are prepared, and the reductions over them.
void NibblePhases::print_row() {
  Writer& w = body_.writer();
  for (size_t i = 0; i < nibbles_.reductions.size(); ++i)
    if (nibbles_.reductions[i].matrix == ir::kNone) own_totals_.push_back(reductions_[i].declare_pass(w, 0, 4));
  w.open("if (aligned)");
  print_row_vectors(true);
  w.close(" else {");
  print_row_vectors(false);
  w.close();
  size_t total = 0;
  for (size_t i = 0; i < nibbles_.reductions.size(); ++i)
    if (nibbles_.reductions[i].matrix == ir::kNone) {
      const std::string result = reductions_[i].across_lanes(w, {own_totals_[total]}, 4)[0];
      w.line("$s[item + $d] = $s;", totals_, static_cast<int64_t>(total++) * shares_.items(), result);
    }
}

void NibblePhases::print_row_vectors(bool aligned) {
  body_.push({});
  body_.assume_aligned(aligned);
  Writer& w = body_.writer();
  const std::string type = body_.kernel().index_type();
  const int64_t step = int64_t{shares_.items()} * 4;
  const bool loops = !aligned || nibbles_.bytes > step * kUnrolled;
  if (loops) {
    w.open("for ($s k = item * 4; k < $d; k += $d)", type, nibbles_.bytes, step);
    print_row_vector("k", "");
    w.close();
  }
  for (int64_t k = 0; k < nibbles_.bytes && !loops; k += step) {
    const std::string name = format("k$d", {k / step}), at = format("item * 4 + $d", {k});
    const bool ends = k + step > nibbles_.bytes;
    w.line("const $s $s = $s;", type, name, ends ? format("min($s, $d)", {at, nibbles_.bytes - 4}) : at);
    print_row_vector(name, ends ? format("$s < $d", {at, nibbles_.bytes}) : "");
  }
  body_.assume_aligned(false);
  const Writer text = body_.pop();
  body_.writer().append(text);
}

/// Prints four elements of each row, from `first` on. They are what a word of weights is multiplied by.
void NibblePhases::print_row_vector(const std::string& first, const std::string& inside) {
  body_.push({{kAlong, first}});
  body_.set_lane(kAlong, 4);
  const int words = nibbles_.words;
  std::vector<std::string> rows;
  for (const NibbleSum& sum : nibbles_.vectors)
    rows.push_back(format("nibble_row($s, $s)", {body_.broadcast_to_width(body_.value(sum.node, sum.x0), 4),
                                                 body_.broadcast_to_width(body_.value(sum.node, sum.x1), 4)}));
  for (const NibbleGroup::Reduction& reduction : nibbles_.reductions)
    if (reduction.matrix == ir::kNone) body_.value(reduction.node, body_.kernel().graph().nodes[reduction.node].reduced[0]);
  print_guarded(body_, inside, [&] {
    Writer& w = body_.writer();
    const std::string word = first + " / 4", at = body_.kernel().fresh("word");
    w.line("const int $s = ($s / $d * $d + $s % $d) * 4 + $s / $d % 4;", at, word, 4 * words, words, word, words, word, words);
    for (size_t j = 0; j < rows.size(); ++j)
      w.line("$s[$s + $d] = as_int4($s);", row_, at, static_cast<int64_t>(j) * nibbles_.row_vectors(), rows[j]);
    size_t total = 0;
    for (size_t i = 0; i < nibbles_.reductions.size(); ++i)
      if (nibbles_.reductions[i].matrix == ir::kNone) reductions_[i].step_pass(0, own_totals_[total++], "");
  });
  const Writer text = body_.pop();
  body_.writer().append(text);
}

/// Prints the first of two merges of the reductions over the rows. The next barrier makes them visible.
void NibblePhases::merge_totals() {
  Writer& w = body_.writer();
  const int left = shares_.items() / kMergedTotals;
  w.open("for (int n = item; n < $d; n += $d)", static_cast<int64_t>(own_totals_.size()) * left, shares_.items());
  w.line("float total = $s[n * $d];", totals_, kMergedTotals);
  w.line("for (int k = 1; k < $d; ++k) total += $s[n * $d + k];", kMergedTotals, totals_, kMergedTotals);
  w.line("$s[n] = total;", merged_);
  w.close();
}

std::string NibblePhases::row_words(int number, const std::string& round, int word) const {
  const int words = nibbles_.words;
  return format("as_uint4($s[(($s) * $d + $d) * 4 + part$s])",
                {row_, step(number, round), words, word, columns_ > 1 ? " + column" : ""});
}

/// Prints the sums of the rows over the steps of a round.
void NibblePhases::print_column_sums() {
  Writer& w = body_.writer();
  for (int number = 0; number < shares_.at_once; ++number) {
    w.line("float4 all$d = 0.0f;", number);
    for (int word = 0; word < nibbles_.words; ++word)
      w.line("all$d = nibble_sum(all$d, $s);", number, number, row_words(number, "0", word));
  }
}

/// Prints the products of a round. Before them come the loads of the next round's scales, and behind them the copies of the
/// weights that take the place of this round's.
void NibblePhases::print_round(const std::string& at) {
  body_.push({});
  Writer& w = body_.writer();
  const bool single = at == "0";
  const auto print_later = [&](Loads what, int later) {
    if (single || later >= shares_.all_rounds()) return;
    const std::string next = format("$s + $d", {at, later});
    w.open("if ($s < $d)", next, shares_.all_rounds());
    print_loads(what, next);
    w.close();
  };
  for (int number = 0; number < shares_.at_once && !single; ++number)
    for (size_t m = 0; m < nibbles_.matrices.size(); ++m)
      for (const int line : {0, 1})
        for (const char* what : {"scale", "zero"}) {
          if (*what == 'z' && nibbles_.matrices[m].zero == ir::kNone) continue;
          const std::string name = named(what, number, m, line);
          w.line("const uint now_$s = $s;", name, name);
        }
  print_later(Loads::kScales, 1);
  w.line("NIBBLE_WAIT($d);", shares_.stages() - 1);
  w.line("__local const $s* from = $s + item$s;", type_name({DType::kI32, nibbles_.words}), weights_,
         single ? "" : format(" + $s % $d * $d", {at, shares_.stages(), place(shares_.at_once, 0, 0)}));
  const std::string round = shares_.rounds > 1 ? format("($s % $d)", {at, shares_.rounds}) : "0";
  for (int number = 0; number < shares_.at_once; ++number) print_products(number, round);
  const std::string tile = single ? "0" : format("$s / $d", {at, shares_.rounds});
  if (shares_.rounds > 1) w.open("if ($s % $d == $d)", at, shares_.rounds, shares_.rounds - 1);
  store_sums(tile);
  if (!single)
    for (size_t m = 0; m < nibbles_.matrices.size(); ++m) w.line("sum$d = 0.0f;", m);
  if (shares_.rounds > 1) w.close();
  print_later(Loads::kWeights, shares_.stages());
  if (!single) w.line("nibble_commit();");
  const Writer text = body_.pop();
  body_.writer().append(text);
}

std::string NibblePhases::of_lines(const std::string& upper, const std::string& lower) const {
  return columns_ > 1 ? format("(float4)($s, $s, $s, $s)", {upper, upper, lower, lower})
                      : format("(float2)($s, $s)", {upper, lower});
}

void NibblePhases::print_products(int number, const std::string& round) {
  Writer& w = body_.writer();
  const std::string type = vector_of("uint", nibbles_.words);
  if (shares_.uneven())
    w.line("const int inside$d = $s * $d + $d + warp < $d;", number, round, shares_.warps * shares_.at_once,
           number * shares_.warps, shares_.steps);
  const auto product_of = [&](size_t m) { return format("product$d_$d", {number, static_cast<int64_t>(m)}); };
  if (shares_.rounds > 1) w.line("float4 all$d = 0.0f;", number);
  for (int word = 0; word < nibbles_.words; ++word) {
    w.line("const uint4 x$d_$d = $s;", number, word, row_words(number, round, word));
    if (shares_.rounds > 1) w.line("all$d = nibble_sum(all$d, x$d_$d);", number, number, number, word);
  }
  for (size_t m = 0; m < nibbles_.matrices.size(); ++m) {
    const NibbleSum& sum = nibbles_.matrices[m];
    for (const int line : {0, 1})
      w.line("const $s $s = as_$s(from[$d]);", type, named("w", number, m, line), type, place(number, m, line));
    w.line("float4 $s = 0.0f;", product_of(m));
    for (int word = 0; word < nibbles_.words; ++word) {
      const std::string lane = nibbles_.words > 1 ? format(".s$d", {word}) : "";
      w.line("$s = nibble_product($s, $s$s, $s$s, x$d_$d);", product_of(m), product_of(m), named("w", number, m, 0), lane,
             named("w", number, m, 1), lane, number, word);
    }
    const auto both = [&](const char* what, const std::string& unless) {
      const std::string upper = loaded_value(what, number, m, 0), lower = loaded_value(what, number, m, 1);
      return unless.empty() ? of_lines(upper, lower)
                            : of_lines(format("$s ? $s : 0.0f", {unless, upper}), format("$s ? $s : 0.0f", {unless, lower}));
    };
    const std::string inside = shares_.uneven() ? format("inside$d", {number}) : "";
    const std::string constant = literal({{true, (sum.zero == ir::kNone ? sum.number : 0) - 128, 0}, DType::kF32});
    const std::string zero = of_lines(constant, constant),
                      offset = sum.zero == ir::kNone
                                   ? zero
                                   : format("fma($s, ($s)($c), $s)", {both("zero", ""), columns_ > 1 ? "float4" : "float2",
                                                                      Literal{{true, sum.number, 0}, DType::kF32}, zero});
    w.line("sum$d = fma($s, fma($s, all$d.$s, $s$s), sum$d);", m, both("scale", inside), offset, number,
           columns_ > 1 ? "xyxy" : "xx", product_of(m), columns_ > 1 ? "" : ".xz", m);
  }
}

/// Prints the stores of a warp's sums of a tile: [tile, warp, matrix, column, row].
void NibblePhases::store_sums(const std::string& tile) {
  Writer& w = body_.writer();
  const int64_t all = nibbles_.sums() * kNibbleTile;
  const auto columns = static_cast<int64_t>(columns_);
  const std::string at = body_.kernel().fresh("to");
  w.line("const int $s = ($s * $d + warp) * $d + part * $d + line;", at, tile, shares_.warps, all, 2 * kNibbleTile);
  for (int64_t column = 0; column < std::min<int64_t>(columns, 2); ++column) {
    w.open("if (part * 2 + $d < $d)", column, columns);
    for (size_t m = 0; m < nibbles_.matrices.size(); ++m)
      for (const int line : {0, 1}) {
        const int64_t place = (static_cast<int64_t>(m) * columns + column) * kNibbleTile + int64_t{8} * line;
        w.line("$s[$s + $d] = sum$d.s$d;", sums_, at, place, m, columns > 1 ? 2 * line + column : line);
      }
    w.close();
  }
}

/// Prints the last merges and the outer phases, for a row of the matrices in each item.
void NibblePhases::print_results() {
  const int64_t all = nibbles_.sums() * kNibbleTile;
  const std::string row = body_.kernel().fresh("n"), type = body_.kernel().index_type();
  Writer unflatten;
  body_.push(write_unflatten(body_, unflatten, row, type, group_.sizes, group_.sizes.size(), SymbolKind::kLoop));
  Writer& w = body_.writer();
  w.append(unflatten);
  w.line("const int at = item / $d * $d + item % $d;", kNibbleTile, shares_.warps * all, kNibbleTile);
  PhaseReductions::Sets results;
  std::vector<std::string> steps;
  int64_t total = 0;
  for (const NibbleGroup::Reduction& reduction : nibbles_.reductions) {
    const std::string result = body_.kernel().fresh("a");
    results.push_back({result});
    if (reduction.matrix == ir::kNone) {
      const int left = shares_.items() / kMergedTotals;
      w.line("float $s = $s[$d];", result, merged_, total * left);
      w.line("for (int k = 1; k < $d; ++k) $s += $s[k + $d];", left, result, merged_, total++ * left);
      continue;
    }
    const int64_t place = (reduction.matrix * static_cast<int64_t>(columns_) + reduction.vector) * kNibbleTile;
    w.line("float $s = $s[at + $d];", result, sums_, place);
    steps.push_back(format("$s += $s[at + k * $d + $d];", {result, sums_, all, place}));
  }
  w.open("for (int k = 1; k < $d; ++k)", shares_.warps);
  for (const std::string& line : steps) w.line("$s", line);
  w.close();
  reductions_.finish(results, 1);
  print_outer_phases();
  const Writer text = body_.pop();
  body_.writer().line("const $s $s = first + item;", type, row);
  body_.writer().open("if (item < $d && $s < $d)", kNibbleTile * shares_.tiles, row, nibbles_.rows);
  body_.writer().append(text);
  body_.writer().close();
}

Grid write_nibbles(Nest& nest, const NibbleGroup& nibbles, const NibbleShares& shares) {
  Writer& top = nest.body.writer();
  const int rows = shares.tiles * kNibbleTile;
  top.line("const int item = get_local_id(0), warp = item / 32, line = item % 32 / 4, part = item % 4;");
  top.line("const $s first = ($s)get_group_id(0) * $d;", nest.kernel.index_type(), nest.kernel.index_type(), rows);
  nest.body.push({});
  NibblePhases(nest.body, nest.group, nibbles, shares).print();
  const Writer text = nest.body.pop();
  nest.body.writer().line("const int aligned = (($s) & 15) == 0;", nest.kernel.all_offsets());
  nest.body.writer().append(text);
  return {ir::ceildiv(IndexExpr(nibbles.rows), rows), 1, 1};
}

}  // namespace ocl::codegen
